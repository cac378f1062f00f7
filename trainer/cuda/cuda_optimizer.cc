#include "trainer/cuda/cuda_optimizer.h"

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

/// Names of an optimizer's state in checkpoints, the same as on the processor; empty if unused.
struct StateNames {
  std::string_view steps;                   ///< Number of updates that were not skipped.
  std::array<std::string_view, 2> moments;  ///< Arrays like the one of all values.
};

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

// Returns the chunks of an update, with the addresses of the bound gradients. `follows` says which
// gradients are directions.
std::vector<UpdateChunk> make_chunks(const DeviceParameters& parameters,
                                     const std::vector<bool>& follows) {
  std::vector<UpdateChunk> chunks;
  for (PlannedChunk& planned : plan_chunks(parameters.plan(), parameters.host())) {
    const DeviceParameter& parameter = parameters[planned.parameter];
    check(parameter.has_gradient(), "an optimizer needs gradients that are bound");
    planned.chunk.gradient = parameter.rounded != nullptr
                                 ? static_cast<const BFloat16*>(parameter.rounded) + planned.begin
                                 : static_cast<const void*>(parameter.gradient + planned.begin);
    planned.chunk.follows = follows[planned.parameter] ? 1 : 0;
    chunks.push_back(planned.chunk);
  }
  return chunks;
}

}  // namespace

struct CudaOptimizer::State {
  State(DeviceParameters& parameters_of, const Kind& kind_of, const OptimizerOptions& options_of)
      : parameters(parameters_of),
        device(parameters.device()),
        stream(parameters.stream()),
        options(options_of),
        kind(kind_of),
        follows(parameters.size()),
        decision(device.allocate(sizeof(UpdateDecision), MemoryKind::kDevice)),
        pinned_decision(device.allocate(sizeof(UpdateDecision), MemoryKind::kPinned)),
        reported(device.make_event()) {
    const std::size_t bytes = parameters.plan().state_count * sizeof(float);
    first = device.allocate(bytes, MemoryKind::kDevice);
    if (!kind.names.moments[1].empty()) second = device.allocate(bytes, MemoryKind::kDevice);
    for (const DeviceMemory* memory : {&first, &second, &decision}) clear(stream, *memory);
    upload_chunks();
  }

  void upload_chunks() {
    is_stale = false;
    const std::vector<UpdateChunk> host_chunks = make_chunks(parameters, follows);
    chunk_count = host_chunks.size();
    if (chunk_count == 0) return;  // other ranks update all elements
    const std::size_t bytes = chunk_count * sizeof(UpdateChunk);
    const DeviceMemory pinned = device.allocate(bytes, MemoryKind::kPinned);
    if (!chunks) {
      chunks = device.allocate(bytes, MemoryKind::kDevice);
      sums = device.allocate(chunk_count * sizeof(double), MemoryKind::kDevice);
    }
    std::memcpy(pinned.data(), host_chunks.data(), bytes);
    stream.copy(bytes_of(chunks, bytes), bytes_of(pinned, bytes));
    stream.record(*reported);
    wait_for(*reported);
  }

  UpdateArrays arrays() const {
    return {.chunks = reinterpret_cast<const UpdateChunk*>(chunks.data()),
            .chunk_count = chunk_count,
            .values = parameters.values(),
            .first = floats_of(first),
            .second = floats_of(second),
            .copy_dtype = parameters.dtype(),
            .copy = parameters.plan().is_sharded ? nullptr : parameters.copies(),
            .gradient_dtype = parameters[0].gradient_dtype()};
  }

  /// Copies the decision from the device to pinned memory, or back. Blocks.
  void copy_decision(bool to_device) {
    const BufferView there = bytes_of(decision, sizeof(UpdateDecision));
    const BufferView here = bytes_of(pinned_decision, sizeof(UpdateDecision));
    stream.copy(to_device ? there : here, to_device ? here : there);
    stream.record(*reported);
    wait_for(*reported);
  }

  UpdateDecision* device_decision() const {
    return reinterpret_cast<UpdateDecision*>(decision.data());
  }

  DeviceParameters& parameters;
  kolo::Device& device;
  Stream& stream;
  OptimizerOptions options;
  const Kind& kind;
  std::vector<bool> follows;  // by parameter
  bool is_stale = false;      // whether `follows` differs from the chunks on the device
  DeviceMemory first, second;
  DeviceMemory decision, pinned_decision;
  DeviceMemory chunks, sums;
  std::size_t chunk_count = 0;
  DeviceMemory squares;  // of all ranks, if `gather` is set
  std::size_t rank = 0;
  std::function<void(const BufferView& squares)> gather;
  std::unique_ptr<Event> reported;
};

CudaOptimizer::CudaOptimizer(DeviceParameters& parameters, std::string_view name,
                             const OptimizerOptions& options) {
  const Kind& kind = find_kind(name);
  const CudaDeviceGuard guard(parameters.device_index());
  state_ = std::make_unique<State>(parameters, kind, options);
}

CudaOptimizer::~CudaOptimizer() = default;

void CudaOptimizer::follow(std::size_t index, bool is_direction) {
  if (state_->follows[index] == is_direction) return;
  state_->follows[index] = is_direction;
  state_->is_stale = true;
}

void CudaOptimizer::gather_squares_by(std::size_t rank, std::size_t ranks,
                                      std::function<void(const BufferView& squares)> gather) {
  state_->squares = state_->device.allocate(ranks * sizeof(double), MemoryKind::kDevice);
  state_->rank = rank;
  state_->gather = std::move(gather);
}

std::size_t CudaOptimizer::bytes() const { return state_->first.bytes() + state_->second.bytes(); }

void CudaOptimizer::step(const UpdateOptions& update) {
  State& s = *state_;
  const CudaDeviceGuard guard(s.parameters.device_index());
  if (s.is_stale) s.upload_chunks();
  const NativeStream stream{s.stream.native()};
  const OptimizerOptions& o = s.options;
  const UpdateArrays arrays = s.arrays();
  auto* sums = reinterpret_cast<double*>(s.sums.data());
  std::size_t count = s.chunk_count;
  sum_squares(stream, arrays, sums);
  if (s.gather) {
    auto* const squares = reinterpret_cast<double*>(s.squares.data());
    const std::size_t ranks = s.squares.bytes() / sizeof(double);
    add_up(stream, sums, count, squares + s.rank);
    s.gather({squares, ranks, DType::kFloat64, MemoryKind::kDevice});
    sums = squares;
    count = ranks;
  }
  decide_update(stream, sums, count,
                {.gradient_scale = update.gradient_scale,
                 .clip_norm = update.clip_norm,
                 .beta1 = o.beta1,
                 .beta2 = o.beta2},
                s.device_decision());
  s.kind.update(stream, arrays, update.lr, o, s.device_decision());
  s.stream.copy(bytes_of(s.pinned_decision, sizeof(UpdateDecision)),
                bytes_of(s.decision, sizeof(UpdateDecision)));
  s.stream.record(*s.reported);
}

void CudaOptimizer::measure(std::size_t index, float beta2, double* energy) {
  State& s = *state_;
  const CudaDeviceGuard guard(s.parameters.device_index());
  const double* sums = reinterpret_cast<const double*>(s.sums.data());
  const auto chunks_of = [&](std::size_t parameter) {
    return (s.parameters[parameter].size + kUpdateChunk - 1) / kUpdateChunk;
  };
  for (std::size_t i = 0; i < index; ++i) sums += chunks_of(i);
  measure_average({s.stream.native()}, sums, chunks_of(index), beta2, s.device_decision(), energy);
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
  const CudaDeviceGuard guard(s.parameters.device_index());
  if (!s.kind.names.steps.empty()) {
    s.copy_decision(/*to_device=*/false);
    auto* const decision = reinterpret_cast<UpdateDecision*>(s.pinned_decision.data());
    visitor.shared(s.kind.names.steps, decision->steps);
    if (visitor.is_restoring()) s.copy_decision(/*to_device=*/true);
  }
  const std::array<const DeviceMemory*, 2> arrays = {&s.first, &s.second};
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    if (s.kind.names.moments[i].empty()) continue;
    float* const array = floats_of(*arrays[i]);
    const std::size_t count = s.parameters.plan().state_count;
    float* const values = s.parameters.fetch(array, count);
    visit_array(visitor, s.kind.names.moments[i], s.parameters.host(), s.parameters.plan(), values);
    if (visitor.is_restoring()) s.parameters.send(array, count);
  }
}

}  // namespace kolo::trainer::cuda
