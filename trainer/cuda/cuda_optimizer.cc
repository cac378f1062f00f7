#include "trainer/cuda/cuda_optimizer.h"

#include <cuda_runtime_api.h>

#include <cstring>
#include <string>
#include <vector>

#include "comm/base/check.h"
#include "comm/device/cuda_device_guard.h"
#include "trainer/config_error.h"
#include "trainer/cuda/compute/wait.h"
#include "trainer/cuda/core/core.h"
#include "trainer/cuda/kernels/update.h"

namespace kolo::trainer::cuda {
namespace {

bool is_adamw(std::string_view name) {
  if (name == "adamw") return true;
  if (name == "sgd") return false;
  throw_config_error("unknown optimizer '" + std::string(name) + "': choose sgd or adamw");
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

// With the addresses of bound gradients.
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
  State(CudaModel::Core& core_of, bool with_second, const OptimizerOptions& options_of)
      : core(core_of),
        options(options_of),
        has_second(with_second),
        first(core.context().floats(core.parameters().plan().count)),
        decision(core.device().allocate(sizeof(UpdateDecision), MemoryKind::kDevice)),
        pinned_decision(core.device().allocate(sizeof(UpdateDecision), MemoryKind::kPinned)),
        reported(core.device().make_event()) {
    Stream& stream = core.stream();
    if (has_second) second = core.context().floats(core.parameters().plan().count);
    for (const DeviceMemory* memory : {&first, &second, &decision}) clear(stream, *memory);
    upload_chunks();
  }

  void upload_chunks() {
    const std::vector<UpdateChunk> host_chunks = make_chunks(core.parameters());
    chunk_count = host_chunks.size();
    const std::size_t bytes = chunk_count * sizeof(UpdateChunk);
    const DeviceMemory pinned = core.device().allocate(bytes, MemoryKind::kPinned);
    chunks = core.device().allocate(bytes, MemoryKind::kDevice);
    partials = core.device().allocate(chunk_count * sizeof(double), MemoryKind::kDevice);
    std::memcpy(pinned.data(), host_chunks.data(), bytes);
    core.stream().copy(bytes_of(chunks, bytes), bytes_of(pinned, bytes));
    core.stream().record(*reported);
    wait_for(*reported);
  }

  UpdateArrays arrays() const {
    const DeviceParameters& parameters = core.parameters();
    return {.chunks = reinterpret_cast<const UpdateChunk*>(chunks.data()),
            .chunk_count = chunk_count,
            .values = parameters.values(),
            .first = floats_of(first),
            .second = floats_of(second),
            .copy_dtype = parameters.dtype(),
            .copy = parameters.copies()};
  }

  UpdateDecision* device_decision() const {
    return reinterpret_cast<UpdateDecision*>(decision.data());
  }

  CudaModel::Core& core;
  OptimizerOptions options;
  bool has_second;  // AdamW
  DeviceMemory first, second;
  DeviceMemory decision, pinned_decision;
  DeviceMemory chunks, partials;
  std::size_t chunk_count = 0;
  std::unique_ptr<Event> reported;
};

CudaOptimizer::CudaOptimizer(CudaModel& model, std::string_view name,
                             const OptimizerOptions& options) {
  const bool with_second = is_adamw(name);
  const CudaDeviceGuard guard(model.core().device_index());
  state_ = std::make_unique<State>(model.core(), with_second, options);
}

CudaOptimizer::~CudaOptimizer() = default;

void CudaOptimizer::step(const UpdateOptions& update) {
  State& s = *state_;
  const CudaDeviceGuard guard(s.core.device_index());
  const NativeStream stream = s.core.context().stream();
  const OptimizerOptions& o = s.options;
  const UpdateArrays arrays = s.arrays();
  decide_update(stream, arrays,
                {.gradient_scale = update.gradient_scale,
                 .clip_norm = update.clip_norm,
                 .beta1 = o.beta1,
                 .beta2 = o.beta2},
                update.non_finite, reinterpret_cast<double*>(s.partials.data()),
                s.device_decision());
  if (s.has_second) {
    update_adamw(stream, arrays,
                 {.lr = update.lr,
                  .beta1 = o.beta1,
                  .beta2 = o.beta2,
                  .epsilon = o.epsilon,
                  .weight_decay = o.weight_decay},
                 s.device_decision());
  } else {
    update_sgd(stream, arrays,
               {.lr = update.lr, .momentum = o.momentum, .weight_decay = o.weight_decay},
               s.device_decision());
  }
  s.core.stream().copy(bytes_of(s.pinned_decision, sizeof(UpdateDecision)),
                       bytes_of(s.decision, sizeof(UpdateDecision)));
  s.core.stream().record(*s.reported);
}

UpdateReport CudaOptimizer::report() {
  wait_for(*state_->reported);
  UpdateDecision decision;
  std::memcpy(&decision, state_->pinned_decision.data(), sizeof(decision));
  return {.gradient_norm = decision.gradient_norm,
          .is_skipped = decision.is_skipped != 0,
          .steps = decision.steps};
}

}  // namespace kolo::trainer::cuda
