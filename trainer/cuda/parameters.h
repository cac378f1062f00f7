#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/device/device.h"
#include "trainer/cuda/kernels/update.h"
#include "trainer/parameter_set.h"

namespace kolo::trainer::cuda {

/// Offset of each parameter in the arrays of all parameters (values, moments, 16-bit copies). Pure.
struct ParameterPlan {
  /// In elements, by parameter; each is a multiple of kParameterAlignment.
  std::vector<std::size_t> offsets;
  std::vector<std::size_t> sizes;
  std::size_t count = 0;  ///< Elements of each array, including gaps between parameters.
};

/// In elements: 256 bytes of a 16-bit copy.
inline constexpr std::size_t kParameterAlignment = 128;

ParameterPlan plan_parameters(const ParameterSet& parameters);

/// One chunk of an update. Its gradient is null until the chunk is filled in.
struct PlannedChunk {
  std::size_t parameter;
  std::size_t begin;  ///< Within the parameter.
  UpdateChunk chunk;
};
std::vector<PlannedChunk> plan_chunks(const ParameterPlan& plan, const ParameterSet& parameters);

/// One parameter on the device.
struct DeviceParameter {
  std::size_t index = 0;
  std::size_t size = 0;
  float* value = nullptr;
  const void* copy = nullptr;  ///< In the dtype of activations; `value` itself for float32.
  float* gradient = nullptr;   ///< Owned by the caller who binds it.
};

/// A ParameterSet on the device: float32 values, and copies in the dtype of activations, each in
/// one array.
///
/// Threads: one. `host`, `device` and `stream` outlive it.
class DeviceParameters {
 public:
  using ReadyHook = std::function<void(std::size_t index)>;

  /// Does not upload the values.
  DeviceParameters(ParameterSet& host, kolo::Device& device, Stream& stream, DType dtype);

  std::size_t size() const { return parameters_.size(); }
  /// The address of the result is stable.
  DeviceParameter& operator[](std::size_t index) { return parameters_[index]; }
  const DeviceParameter& operator[](std::size_t index) const { return parameters_[index]; }
  /// Errors: UsageError if there is no parameter of this name.
  DeviceParameter& of(std::string_view name);

  const ParameterPlan& plan() const { return plan_; }
  const ParameterSet& host() const { return host_; }
  float* values() const { return reinterpret_cast<float*>(values_.data()); }
  /// The 16-bit copies of all parameters; null for float32.
  void* copies() const { return copies_.data(); }
  DType dtype() const { return dtype_; }

  /// Copies host values to the device through pinned memory, and casts them. Blocks.
  void upload();
  /// Copies device values to the host. Blocks.
  void download();
  /// Enqueues the casts of all values to `dtype`.
  void refresh_copies();

  void on_ready(ReadyHook hook) { hook_ = std::move(hook); }
  /// Called by the layer when the work that completes this gradient has been enqueued.
  void ready(const DeviceParameter& parameter) {
    if (hook_) hook_(parameter.index);
  }

 private:
  void wait_for_stream();

  ParameterSet& host_;
  Stream& stream_;
  DType dtype_;
  ParameterPlan plan_;
  DeviceMemory values_, copies_, staging_;
  std::unique_ptr<Event> done_;
  std::vector<DeviceParameter> parameters_;
  ReadyHook hook_;
};

}  // namespace kolo::trainer::cuda
