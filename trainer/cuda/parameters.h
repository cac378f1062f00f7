#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/device/device.h"
#include "trainer/checkpoint/state_visitor.h"
#include "trainer/cuda/kernels/update.h"
#include "trainer/parameter_set.h"
#include "trainer/tensor.h"

namespace kolo::trainer::cuda {

/// The offset of each parameter in the arrays of all parameters (values, moments, 16-bit copies).
struct ParameterPlan {
  /// Offsets in elements by parameter, each a multiple of kParameterAlignment.
  std::vector<std::size_t> offsets;
  std::vector<std::size_t> sizes;
  std::size_t count = 0;  ///< Elements of an array, including gaps between parameters.
};

/// Alignment of parameters in elements; a 16-bit copy is thus aligned to 256 bytes.
inline constexpr std::size_t kParameterAlignment = 128;

ParameterPlan plan_parameters(const ParameterSet& parameters);

/// Passes an array of all parameters, laid out by `plan` in host memory, to `visitor`: a shared
/// piece "NAME/PARAMETER" per parameter, as an optimizer on the processor does.
void visit_array(StateVisitor& visitor, std::string_view name, const ParameterSet& parameters,
                 const ParameterPlan& plan, float* values);

/// A chunk of an update. `chunk.gradient` is null until the gradients are bound.
struct PlannedChunk {
  std::size_t parameter;
  std::size_t begin;  ///< Index of the chunk's first element in the parameter.
  UpdateChunk chunk;
};
std::vector<PlannedChunk> plan_chunks(const ParameterPlan& plan, const ParameterSet& parameters);

/// A parameter on the device.
struct DeviceParameter {
  std::size_t index = 0;
  std::size_t size = 0;
  float* value = nullptr;
  const void* copy = nullptr;  ///< Values in the dtype of activations; `value` itself for float32.
  float* gradient = nullptr;   ///< Gradient, in memory of the caller who binds it.
};

/// A backward pass of a step. The gradients of a step's passes add up: the first pass overwrites
/// gradients, later ones add to them, and the last one completes them.
struct GradientPass {
  bool is_first = true;
  bool is_last = true;
};
inline constexpr std::size_t kPassKinds = 4;
/// A number below kPassKinds.
constexpr std::size_t kind_of(GradientPass pass) {
  return (pass.is_first ? 2 : 0) + (pass.is_last ? 1 : 0);
}

/// Counts the backward passes of steps.
class PassCounter {
 public:
  /// Sets the number of passes per step. Call between steps. Before: passes > 0.
  void set(std::size_t passes) { passes_ = passes; }
  /// The next pass, and moves on.
  GradientPass next() {
    const GradientPass pass{.is_first = done_ == 0, .is_last = done_ + 1 == passes_};
    done_ = (done_ + 1) % passes_;
    return pass;
  }

 private:
  std::size_t passes_ = 1;
  std::size_t done_ = 0;  // in this step
};

/// A ParameterSet on the device. One array holds the float32 values, and another one their copies
/// in the dtype of activations.
///
/// Threads: one. `host`, `device` and `stream` outlive this object.
class DeviceParameters {
 public:
  using ReadyHook = std::function<void(std::size_t index)>;

  /// Allocates memory, and does not upload the values.
  DeviceParameters(ParameterSet& host, kolo::Device& device, Stream& stream, DType dtype);

  std::size_t size() const { return parameters_.size(); }
  /// The parameter of this index; its address never changes.
  DeviceParameter& operator[](std::size_t index) { return parameters_[index]; }
  const DeviceParameter& operator[](std::size_t index) const { return parameters_[index]; }
  /// The parameter of this name. Errors: UsageError if there is none.
  DeviceParameter& of(std::string_view name);

  const ParameterPlan& plan() const { return plan_; }
  const ParameterSet& host() const { return host_; }
  float* values() const { return reinterpret_cast<float*>(values_.data()); }
  /// The 16-bit copies of all parameters; null for float32.
  void* copies() const { return copies_.data(); }
  DType dtype() const { return dtype_; }

  /// Copies values from the host to the device through pinned memory, and casts them. Blocks.
  void upload();
  /// Copies values from the device to the host. Blocks.
  void download();
  /// Copies `array`, one like `values`, from the device to pinned memory. Blocks. Returns that
  /// memory, which the next call of `fetch`, `send`, `upload` or `download` overwrites.
  float* fetch(float* array);
  /// Copies the pinned memory to `array` on the device. Blocks.
  void send(float* array);
  /// Enqueues casts of all values to `dtype`.
  void refresh_copies();

  /// Begins a backward pass.
  void begin(GradientPass pass) { pass_ = pass; }
  /// How layers store their first contribution to a gradient in this pass.
  Into mode() const { return pass_.is_first ? Into::kOverwrite : Into::kAdd; }

  /// Sets the hook that `ready` calls in the last backward pass of a step.
  void on_ready(ReadyHook hook) { hook_ = std::move(hook); }
  /// A layer calls this after it has enqueued the work that completes the parameter's gradient of
  /// this pass.
  void ready(const DeviceParameter& parameter) {
    if (hook_ && pass_.is_last) hook_(parameter.index);
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
  GradientPass pass_;
  ReadyHook hook_;
};

}  // namespace kolo::trainer::cuda
