#include "trainer/cuda/updater.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "comm/device/cuda_device.h"
#include "trainer/cuda/device_directions.h"
#include "trainer/loop/compression_rules.h"
#include "trainer/loop/parameter_exchange.h"
#include "trainer/shards/shard_plan.h"

namespace kolo::trainer::cuda {
namespace {

/// Ranks average whole gradients in device memory of the runtime, and each updates all values. SGD
/// follows averages that already include its momentum, and AdamW sparse averages of directions, as
/// on the processor; see GradientExchange.
class ReplicatedUpdater final : public DeviceUpdater {
 public:
  ReplicatedUpdater(const Config& config, Runtime& runtime, DeviceParameters& parameters)
      : DeviceUpdater(config, runtime.options(), parameters),
        gradients_(register_gradients(runtime, parameters.host(),
                                      {.memory = MemoryKind::kDevice, .dtype = dtype_},
                                      {.compression = runtime.options().compression})),
        momentum_(config.optimizer_options.momentum),
        needs_direction_(
            need_directions(parameters.host(), gradients_, runtime.options().compression)),
        roles_(parameters.size()) {
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      parameters.bind_gradient(i, gradients_.view(i).data, dtype_);
    }
    make_optimizer(config);
    if (config.optimizer == "adamw" && std::ranges::count(needs_direction_, true) > 0) {
      directions_.emplace(parameters, Optimizer::Adaptation{config.optimizer_options.beta2,
                                                            config.optimizer_options.epsilon});
    }
    begin_step();
  }

  void ready(std::size_t index) override {
    if (roles_[index] == Adaptive::kTurns) directions_->turn(index);
    if (roles_[index] == Adaptive::kObserves) directions_->observe(index);
    gradients_.ready(index, stream());
  }
  void await_averages() override { gradients_.wait(stream()); }
  StepReport update(float lr, const UpdateVerdict& verdict) override {
    const StepReport report = DeviceUpdater::update(lr, verdict);
    if (directions_ && !report.is_skipped) directions_->commit();
    return report;
  }
  void visit_state(StateVisitor& visitor) override {
    DeviceUpdater::visit_state(visitor);
    if (directions_) directions_->visit_state(visitor);
    visit_compression(visitor, gradients_);
    if (visitor.is_restoring()) begin_step();
  }
  PlanSummary plan() const override { return gradients_.plan(); }
  std::vector<CompressionStats> compression_stats() const override {
    return gradients_.compression_stats();
  }

 private:
  // Averages of directions have no norm that could be clipped.
  bool clips() const override { return std::ranges::count(roles_, Adaptive::kTurns) == 0; }
  void updated() override {
    for (std::size_t i = 0; i < roles_.size(); ++i) {
      if (roles_[i] == Adaptive::kObserves) directions_->observe_average(optimizer(), i);
    }
    begin_step();
  }
  void begin_step() {
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      const float corrected = gradients_.corrected_momentum(i);
      if (corrected > 0) require_momentum(corrected, momentum_, parameters_.host()[i].name());
      if (directions_ && needs_direction_[i]) roles_[i] = adaptive_role(gradients_, i);
      optimizer().follow(i, corrected > 0 || roles_[i] == Adaptive::kTurns);
    }
  }

  GradientSet gradients_;
  const float momentum_;
  const std::vector<bool> needs_direction_;  // by parameter, in any step
  std::vector<Adaptive> roles_;              // by parameter, in this step
  std::optional<DeviceDirections> directions_;
};

ShardPlan plan_shards(const ParameterSet& parameters, const Runtime& runtime,
                      std::size_t bucket_bytes) {
  return {parameters, static_cast<std::size_t>(runtime.world_size()), bucket_bytes};
}

/// Each rank gets the averages of a part of each bucket, keeps optimizer state only for that part,
/// updates it, and sends its new values to all ranks. The buckets are ranges of the arrays of
/// gradients and values, so no collective packs elements. As on the processor, see
/// ShardedOptimizer; but all values are awaited before the next forward pass.
///
/// Bits: those of a ReplicatedUpdater if the device's library adds ranks in the same order, and
///       unless gradients are clipped: the sum of their squares has other parts.
class ShardedUpdater final : public DeviceUpdater {
 public:
  ShardedUpdater(const Config& config, Runtime& runtime, DeviceParameters& parameters)
      : DeviceUpdater(config, runtime.options(), parameters),
        runtime_(runtime),
        bucket_bytes_(checked_bucket_bytes(runtime, dtype_)),
        shards_(plan_shards(parameters.host(), runtime, bucket_bytes_)),
        gradients_(parameters.own_gradients(dtype_)) {
    std::size_t offset = 0;
    for (const ShardPlan::Bucket& bucket : shards_.buckets()) {
      buckets_.push_back({.offset = offset, .left = bucket.segments.size()});
      offset += bucket.count;
    }
    make_optimizer(config).gather_squares_by(
        static_cast<std::size_t>(runtime.rank()), static_cast<std::size_t>(runtime.world_size()),
        [this](const BufferView& squares) {
          squares_ = runtime_.all_gather("squares of gradients", squares, stream());
          squares_->wait(stream());
        });
  }

  void ready(std::size_t index) override {
    const std::size_t number = shards_.bucket_of(index).value();
    Bucket& bucket = buckets_[number];
    if (--bucket.left > 0) return;
    bucket.left = shards_.buckets()[number].segments.size();
    bucket.gradients =
        runtime_.reduce_scatter(fmt::format("gradients {}", number),
                                range_of(gradients_, dtype_, number), ReduceOp::kAverage, stream());
  }
  void await_averages() override {
    for (Bucket& bucket : buckets_) bucket.gradients->wait(stream());
  }
  void await_values() override {
    const CudaDeviceGuard guard(parameters_.device_index());
    for (Bucket& bucket : buckets_) bucket.values->wait(stream());
    parameters_.refresh_copies();
  }
  void visit_state(StateVisitor& visitor) override {
    DeviceUpdater::visit_state(visitor);
    visit_no_compression(visitor);
  }
  PlanSummary plan() const override {
    return summarize(shards_, parameters_.host(), bucket_bytes_, dtype_);
  }
  std::vector<CompressionStats> compression_stats() const override { return {}; }

 private:
  // A ticket is kept until the next step replaces it, because its destructor would wait.
  struct Bucket {
    std::size_t offset;  // of its first element in the arrays
    std::size_t left;    // number of incomplete gradients
    std::optional<Ticket> gradients = {};
    std::optional<Ticket> values = {};
  };

  BufferView range_of(void* array, DType dtype, std::size_t bucket) const {
    return {static_cast<std::byte*>(array) + buckets_[bucket].offset * size_of(dtype),
            shards_.buckets()[bucket].count, dtype, MemoryKind::kDevice};
  }
  // The forward pass first needs the last bucket, which has the first layers.
  void updated() override {
    for (std::size_t i = buckets_.size(); i-- > 0;) {
      buckets_[i].values =
          runtime_.all_gather(fmt::format("weights {}", i),
                              range_of(parameters_.values(), DType::kFloat32, i), stream());
    }
  }

  Runtime& runtime_;
  const std::size_t bucket_bytes_;
  const ShardPlan shards_;
  std::byte* const gradients_;
  std::vector<Bucket> buckets_;
  std::optional<Ticket> squares_;
};

}  // namespace

DeviceUpdater::DeviceUpdater(const Config& config, const Options& options,
                             DeviceParameters& parameters)
    : parameters_(parameters),
      dtype_(gradient_dtype(config, options)),
      gate_(update_options(config)) {}

CudaOptimizer& DeviceUpdater::make_optimizer(const Config& config) {
  return optimizer_.emplace(parameters_, config.optimizer, config.optimizer_options);
}

StepReport DeviceUpdater::update(float lr, const UpdateVerdict&) {
  optimizer_->step({.lr = lr,
                    .gradient_scale = 1.0f / gate_.loss_scale(),
                    .clip_norm = clips() ? gate_.clip_norm() : 0.0});
  updated();
  const UpdateReport report = optimizer_->report();
  if (gate_.record(report.is_skipped)) {
    const CudaDeviceGuard guard(parameters_.device_index());
    parameters_.download();
    throw_diverged("gradients are", parameters_.host());
  }
  return {.gradient_norm = report.gradient_norm, .is_skipped = report.is_skipped};
}

void DeviceUpdater::visit_state(StateVisitor& visitor) {
  optimizer_->visit_state(visitor);
  gate_.visit_state(visitor);
}

UpdateMemory DeviceUpdater::memory() {
  return {.optimizer_bytes = optimizer_->bytes(),
          .gradient_bytes = parameters_.plan().count * size_of(dtype_) + parameters_.sum_bytes()};
}

MakeParameterPlan parameter_plan(const Config& config, const Runtime& runtime) {
  if (config.shard == "none") return plan_parameters;
  const std::size_t bucket_bytes =
      checked_bucket_bytes(runtime, gradient_dtype(config, runtime.options()));
  return [&runtime, bucket_bytes](const ParameterSet& parameters) {
    const ShardPlan shards = plan_shards(parameters, runtime, bucket_bytes);
    const auto rank = static_cast<std::size_t>(runtime.rank());
    ParameterPlan plan = plan_parameters(parameters);
    plan.is_sharded = true;
    plan.count = plan.state_count = 0;
    for (const ShardPlan::Bucket& bucket : shards.buckets()) {
      for (const ShardPlan::Segment& segment : bucket.segments) {
        const std::size_t i = segment.parameter;
        plan.offsets[i] = plan.count + segment.offset;
        plan.owned[i] = shards.range(i, rank);
        // The rank's part of the bucket has the elements from the beginning of what it owns.
        const std::size_t begin = rank * shards.part_count(bucket);
        plan.states[i] = plan.state_count;
        if (plan.owned[i].count > 0) plan.states[i] += segment.offset + plan.owned[i].begin - begin;
      }
      plan.count += bucket.count;
      plan.state_count += shards.part_count(bucket);
    }
    return plan;
  };
}

std::unique_ptr<DeviceUpdater> make_updater(const Config& config, Runtime& runtime,
                                            DeviceParameters& parameters) {
  if (config.shard == "none") {
    return std::make_unique<ReplicatedUpdater>(config, runtime, parameters);
  }
  return std::make_unique<ShardedUpdater>(config, runtime, parameters);
}

}  // namespace kolo::trainer::cuda
