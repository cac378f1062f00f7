#include "trainer/cuda/cuda_optimizer.h"

#include <cuda_runtime_api.h>

#include <array>
#include <cstring>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/base/check.h"
#include "comm/device/cuda_device.h"
#include "trainer/cuda/compute/status.h"
#include "trainer/cuda/kernels/update.h"
#include "trainer/errors.h"

namespace kolo::trainer::cuda {
namespace {

/// A kind of optimizer on the device.
struct Kind {
  std::string_view name;
  StateNames names;
  void (*update)(NativeStream stream, const UpdateArrays& arrays, float lr,
                 const OptimizerOptions& options, const UpdateDecision* decision);
};

/// All kinds of optimizers. To add one, add an entry here.
constexpr Kind kKinds[] = {
    {"sgd",
     {.steps = "", .moments = {"sgd.velocity"}},
     [](NativeStream stream, const UpdateArrays& arrays, float lr, const OptimizerOptions& o,
        const UpdateDecision* decision) {
       update_sgd(stream, arrays,
                  {.lr = lr, .momentum = o.momentum, .weight_decay = o.weight_decay}, decision);
     }},
    {"adamw",
     {.steps = "adam.steps", .moments = {"adam.first_moment", "adam.second_moment"}},
     [](NativeStream stream, const UpdateArrays& arrays, float lr, const OptimizerOptions& o,
        const UpdateDecision* decision) {
       update_adamw(stream, arrays,
                    {.lr = lr,
                     .beta1 = o.beta1,
                     .beta2 = o.beta2,
                     .epsilon = o.epsilon,
                     .weight_decay = o.weight_decay},
                    decision);
     }},
};

const Kind& find_kind(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Kind& kind : kKinds) {
    if (kind.name == name) return kind;
    names.push_back(kind.name);
  }
  throw_config_error(
      fmt::format("unknown optimizer '{}': choose {}", name, fmt::join(names, " or ")));
}

BufferView bytes_of(const DeviceMemory& memory, std::size_t bytes) {
  return {memory.data(), bytes, DType::kUInt8, memory.kind()};
}

void clear(Stream& stream, const DeviceMemory& memory) {
  if (!memory) return;
  require_cuda(
      cudaMemsetAsync(memory.data(), 0, memory.bytes(), static_cast<cudaStream_t>(stream.native())),
      "cudaMemsetAsync");
}

// Returns the chunks of an update, with the addresses of the bound gradients.
std::vector<UpdateChunk> make_chunks(const DeviceParameters& parameters) {
  std::vector<UpdateChunk> chunks;
  for (PlannedChunk& planned : plan_chunks(parameters.plan(), parameters.host())) {
    const float* const gradient = parameters[planned.parameter].gradient;
    check(gradient != nullptr, "an optimizer needs gradients that are bound");
    planned.chunk.gradient = gradient + planned.begin;
    chunks.push_back(planned.chunk);
  }
  return chunks;
}

}  // namespace

struct CudaOptimizer::State {
  State(CudaModel& model_of, const Kind& kind_of, const OptimizerOptions& options_of)
      : model(model_of),
        options(options_of),
        kind(kind_of),
        first(model.context().floats(model.device_parameters().plan().count)),
        decision(model.device().allocate(sizeof(UpdateDecision), MemoryKind::kDevice)),
        pinned_decision(model.device().allocate(sizeof(UpdateDecision), MemoryKind::kPinned)),
        reported(model.device().make_event()) {
    Stream& stream = model.device_stream();
    if (!kind.names.moments[1].empty())
      second = model.context().floats(model.device_parameters().plan().count);
    for (const DeviceMemory* memory : {&first, &second, &decision}) clear(stream, *memory);
    upload_chunks();
  }

  void upload_chunks() {
    const std::vector<UpdateChunk> host_chunks = make_chunks(model.device_parameters());
    chunk_count = host_chunks.size();
    const std::size_t bytes = chunk_count * sizeof(UpdateChunk);
    const DeviceMemory pinned = model.device().allocate(bytes, MemoryKind::kPinned);
    chunks = model.device().allocate(bytes, MemoryKind::kDevice);
    partials = model.device().allocate(chunk_count * sizeof(double), MemoryKind::kDevice);
    std::memcpy(pinned.data(), host_chunks.data(), bytes);
    model.device_stream().copy(bytes_of(chunks, bytes), bytes_of(pinned, bytes));
    model.device_stream().record(*reported);
    wait_for(*reported);
  }

  UpdateArrays arrays() const {
    const DeviceParameters& parameters = model.device_parameters();
    return {.chunks = reinterpret_cast<const UpdateChunk*>(chunks.data()),
            .chunk_count = chunk_count,
            .values = parameters.values(),
            .first = floats_of(first),
            .second = floats_of(second),
            .copy_dtype = parameters.dtype(),
            .copy = parameters.copies()};
  }

  /// Copies the decision from the device to pinned memory, or back. Blocks.
  void copy_decision(bool to_device) {
    const BufferView device = bytes_of(decision, sizeof(UpdateDecision));
    const BufferView pinned = bytes_of(pinned_decision, sizeof(UpdateDecision));
    Stream& stream = model.device_stream();
    stream.copy(to_device ? device : pinned, to_device ? pinned : device);
    stream.record(*reported);
    wait_for(*reported);
  }

  UpdateDecision* device_decision() const {
    return reinterpret_cast<UpdateDecision*>(decision.data());
  }

  CudaModel& model;
  OptimizerOptions options;
  const Kind& kind;
  DeviceMemory first, second;
  DeviceMemory decision, pinned_decision;
  DeviceMemory chunks, partials;
  std::size_t chunk_count = 0;
  std::unique_ptr<Event> reported;
};

StateNames state_names(std::string_view optimizer) { return find_kind(optimizer).names; }

CudaOptimizer::CudaOptimizer(CudaModel& model, std::string_view name,
                             const OptimizerOptions& options) {
  const Kind& kind = find_kind(name);
  const CudaDeviceGuard guard(model.device_index());
  state_ = std::make_unique<State>(model, kind, options);
}

CudaOptimizer::~CudaOptimizer() = default;

void CudaOptimizer::step(const UpdateOptions& update) {
  State& s = *state_;
  const CudaDeviceGuard guard(s.model.device_index());
  const NativeStream stream = s.model.context().stream();
  const OptimizerOptions& o = s.options;
  const UpdateArrays arrays = s.arrays();
  decide_update(stream, arrays,
                {.gradient_scale = update.gradient_scale,
                 .clip_norm = update.clip_norm,
                 .beta1 = o.beta1,
                 .beta2 = o.beta2},
                reinterpret_cast<double*>(s.partials.data()), s.device_decision());
  s.kind.update(stream, arrays, update.lr, o, s.device_decision());
  s.model.device_stream().copy(bytes_of(s.pinned_decision, sizeof(UpdateDecision)),
                               bytes_of(s.decision, sizeof(UpdateDecision)));
  s.model.device_stream().record(*s.reported);
}

UpdateReport CudaOptimizer::report() {
  wait_for(*state_->reported);
  UpdateDecision decision;
  std::memcpy(&decision, state_->pinned_decision.data(), sizeof(decision));
  return {.gradient_norm = decision.gradient_norm,
          .is_skipped = decision.is_skipped != 0,
          .steps = decision.steps};
}

void CudaOptimizer::visit_state(StateVisitor& visitor) {
  State& s = *state_;
  const CudaDeviceGuard guard(s.model.device_index());
  if (!s.kind.names.steps.empty()) {
    s.copy_decision(/*to_device=*/false);
    auto* const decision = reinterpret_cast<UpdateDecision*>(s.pinned_decision.data());
    visitor.shared(s.kind.names.steps, decision->steps);
    if (visitor.is_restoring()) s.copy_decision(/*to_device=*/true);
  }
  DeviceParameters& parameters = s.model.device_parameters();
  const std::array<const DeviceMemory*, 2> arrays = {&s.first, &s.second};
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    if (s.kind.names.moments[i].empty()) continue;
    float* const array = floats_of(*arrays[i]);
    float* const values = parameters.fetch(array);
    visit_array(visitor, s.kind.names.moments[i], parameters.host(), parameters.plan(), values);
    if (visitor.is_restoring()) parameters.send(array);
  }
}

}  // namespace kolo::trainer::cuda
