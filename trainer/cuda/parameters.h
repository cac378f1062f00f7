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

/// The place of each parameter in the arrays of all parameters (values, 16-bit copies, gradients),
/// and of the elements that this rank updates in the arrays of moments.
struct ParameterPlan {
  std::vector<std::size_t> offsets;  ///< Offsets in elements, by parameter.
  std::vector<std::size_t> sizes;
  std::size_t count = 0;            ///< Elements of an array, including gaps between parameters.
  std::vector<ElementRange> owned;  ///< The elements that this rank updates, by parameter.
  std::vector<std::size_t> states;  ///< Offsets of their moments.
  std::size_t state_count = 0;      ///< Elements of an array of moments.
  bool is_sharded = false;          ///< Whether other ranks update the other elements.
};

/// Alignment of parameters in elements; a 16-bit copy is thus aligned to 256 bytes.
inline constexpr std::size_t kParameterAlignment = 128;

/// The plan of a rank that updates all elements.
ParameterPlan plan_parameters(const ParameterSet& parameters);
using MakeParameterPlan = std::function<ParameterPlan(const ParameterSet& parameters)>;

/// Passes an array of moments, laid out by `plan` in host memory, to `visitor`: a shared piece or a
/// shard "NAME/PARAMETER" per parameter, as an optimizer on the processor does.
void visit_array(StateVisitor& visitor, std::string_view name, const ParameterSet& parameters,
                 const ParameterPlan& plan, float* values);

/// A chunk of the elements that this rank updates. `chunk.gradient` is null until the gradients are
/// bound.
struct PlannedChunk {
  std::size_t parameter;
  std::size_t begin;  ///< Index of the chunk's first element in the parameter.
  UpdateChunk chunk;
};
std::vector<PlannedChunk> plan_chunks(const ParameterPlan& plan, const ParameterSet& parameters);

inline float* floats_of(const DeviceMemory& memory) {
  return reinterpret_cast<float*>(memory.data());
}

/// Enqueues zeros into `memory` on the device; it may be empty.
void clear(Stream& stream, const DeviceMemory& memory);

/// A parameter on the device.
struct DeviceParameter {
  std::size_t index = 0;
  std::size_t size = 0;
  float* value = nullptr;
  const void* copy = nullptr;  ///< Values in the dtype of activations; `value` itself for float32.
  /// Where layers add up the gradient. For a bfloat16 gradient this is memory of DeviceParameters,
  /// or null if no layer needs it.
  float* gradient = nullptr;
  /// The bfloat16 gradient; null if the gradient is float32, which `gradient` then is.
  void* rounded = nullptr;
  /// Whether a product computes the whole gradient of a pass, and can write it in bfloat16.
  bool is_one_product = false;

  bool has_gradient() const { return gradient != nullptr || rounded != nullptr; }
  DType gradient_dtype() const { return rounded != nullptr ? DType::kBFloat16 : DType::kFloat32; }
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
/// A gradient is float32 or bfloat16. A bfloat16 gradient is rounded once per step, as on the
/// processor: by the product that computes it or, if several contributions add up in float32, when
/// it is ready.
///
/// Threads: one. `host`, `device` and `stream` outlive this object.
class DeviceParameters {
 public:
  using ReadyHook = std::function<void(std::size_t index)>;

  /// Allocates memory, and does not upload the values.
  DeviceParameters(ParameterSet& host, kolo::Device& device, Stream& stream, DType dtype,
                   ParameterPlan plan);
  DeviceParameters(ParameterSet& host, kolo::Device& device, Stream& stream, DType dtype)
      : DeviceParameters(host, device, stream, dtype, plan_parameters(host)) {}

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
  /// Copies `array`, of at most plan().count elements, from the device to pinned memory. Blocks.
  /// Returns that memory, which the next call of `fetch`, `send`, `upload` or `download`
  /// overwrites.
  float* fetch(float* array, std::size_t count);
  /// Copies the pinned memory to `array` on the device. Blocks.
  void send(float* array, std::size_t count);
  /// Enqueues casts of all values to `dtype`.
  void refresh_copies();

  kolo::Device& device() const { return device_; }
  Stream& stream() const { return stream_; }
  int device_index() const { return device_index_; }

  /// Makes `memory` the memory of gradient `index`: elements of `dtype`, float32 or bfloat16, on
  /// the device. Errors: UsageError unless it is aligned to 16 bytes.
  void bind_gradient(std::size_t index, void* memory, DType dtype);
  /// Binds every gradient to memory of this object: an array of `dtype` with the places of the
  /// plan. The contents of gaps are unspecified. Returns the array.
  std::byte* own_gradients(DType dtype);

  /// Begins a backward pass. Allocates memory for float32 sums that no pass has needed so far.
  void begin(GradientPass pass);
  /// Bytes of these sums.
  std::size_t sum_bytes() const;
  /// Whether a product writes `rounded`, in place of `gradient`, in this pass.
  bool is_rounded_by_product(const DeviceParameter& parameter) const {
    return parameter.rounded != nullptr && parameter.is_one_product && pass_.is_first &&
           pass_.is_last;
  }
  /// How layers store their first contribution to a gradient in this pass.
  Into mode() const { return pass_.is_first ? Into::kOverwrite : Into::kAdd; }

  /// Sets the hook that `ready` calls in the last backward pass of a step.
  void on_ready(ReadyHook hook) { hook_ = std::move(hook); }
  /// A layer calls this after it has enqueued the work that completes the parameter's gradient of
  /// this pass.
  void ready(const DeviceParameter& parameter);

 private:
  void wait_for_stream();

  ParameterSet& host_;
  kolo::Device& device_;
  Stream& stream_;
  int device_index_;
  DType dtype_;
  ParameterPlan plan_;
  DeviceMemory values_, copies_, staging_;
  std::unique_ptr<Event> done_;
  std::vector<DeviceParameter> parameters_;
  DeviceMemory own_gradients_;
  std::vector<DeviceMemory> sums_;  // of bfloat16 gradients, by parameter; empty if not needed
  GradientPass pass_;
  ReadyHook hook_;
};

}  // namespace kolo::trainer::cuda
