#include "trainer/shards/sharded_optimizer.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "comm/base/log.h"
#include "trainer/checkpoint/state_bytes.h"
#include "trainer/config_error.h"
#include "trainer/divergence.h"
#include "trainer/loop/parameter_exchange.h"
#include "trainer/shards/shard_norm.h"

namespace kolo::trainer {
namespace {

/// Shards are summed node by node, each node's sum rounded to the wire. With `direct` an all-reduce
/// sums the ranks of all nodes at once.
bool sums_otherwise(const Runtime& runtime) {
  return runtime.options().algorithm == "direct" && runtime.num_nodes() > 1 &&
         runtime.num_nodes() < runtime.world_size();
}

void check_wire(const Runtime& runtime, DType wire) {
  if (wire == DType::kFloat16) {
    throw_config_error(
        "--shard with --wire float16: its powers of two follow from whole averages, of which a "
        "rank has a shard; set --wire bfloat16, or --shard none");
  }
  if (wire != DType::kFloat32 && wire != DType::kBFloat16) {
    throw_config_error(
        fmt::format("--shard with --wire {}: shards travel as float32 or bfloat16; choose one of "
                    "these, or --shard none",
                    to_string(wire)));
  }
  if (wire == DType::kBFloat16 && sums_otherwise(runtime)) {
    throw_config_error(
        "--shard with --wire bfloat16 and --algorithm direct on nodes of several ranks: the sums "
        "of shards are rounded once per node; set --algorithm hierarchical:direct,direct, or "
        "--shard none");
  }
}

/// Errors: KoloError(kConfig) naming an option that does not go with shards.
std::size_t bucket_bytes_of(const Runtime& runtime) {
  const Options& options = runtime.options();
  if (options.compression != "none" && !options.compression.empty()) {
    throw_config_error(fmt::format(
        "--shard with --compression {}: shards are sums of dense gradients; set --compression "
        "none, with --wire bfloat16 for 16 bits, or --shard none",
        options.compression));
  }
  check_wire(runtime, options.wire_dtype.value_or(DType::kFloat32));
  return shard_bucket_bytes(options);
}

}  // namespace

ShardedOptimizer::ShardedOptimizer(Runtime& runtime, ParameterSet& parameters,
                                   const MakeOptimizer& make, const Options& options,
                                   const Clock& clock)
    : runtime_(runtime),
      parameters_(parameters),
      clock_(clock),
      bucket_bytes_(bucket_bytes_of(runtime)),
      plan_(parameters, static_cast<std::size_t>(runtime.world_size()), bucket_bytes_),
      gate_(options.gate),
      gradients_(runtime, parameters, plan_, options.gradients),
      rows_(runtime, parameters),
      gathers_(plan_.buckets().size()),
      optimizer_(make(parameters)) {
  broadcast_values(runtime, parameters);
  bind_values();
  parameters.on_gradient_ready([this](std::size_t index) {
    communicate([&] {
      if (plan_.bucket_of(index)) {
        gradients_.ready(index);
      } else {
        rows_.begin(index);
      }
    });
  });
  parameters.on_gradient_needed(
      [this](std::size_t index) { communicate([&] { gradients_.open(index); }); });
  parameters.on_value_needed(
      [this](std::size_t index) { finish_gather(plan_.bucket_of(index).value()); });
}

ShardedOptimizer::~ShardedOptimizer() {
  parameters_.on_gradient_ready({});
  parameters_.on_gradient_needed({});
  for (std::size_t bucket = 0; bucket < gathers_.size(); ++bucket) {
    try {
      if (gathers_[bucket]) finish_gather(bucket);
    } catch (const KoloError& error) {
      log::debug(fmt::format("weights end without those of other ranks: {}", error.what()));
    }
    for (const ShardPlan::Segment& segment : plan_.buckets()[bucket].segments) {
      parameters_[segment.parameter].value_arrived();
      parameters_[segment.parameter].unbind_value();
    }
  }
  parameters_.on_value_needed({});
}

void ShardedOptimizer::bind_values() {
  std::size_t count = 0;
  for (const ShardPlan::Bucket& bucket : plan_.buckets()) count += bucket.count;
  memory_ = runtime_.allocate(count * sizeof(float));
  std::span<float> left(reinterpret_cast<float*>(memory_.get()), count);
  std::ranges::fill(left, 0.0f);  // padding is sent, too
  for (const ShardPlan::Bucket& bucket : plan_.buckets()) {
    values_.push_back(left.first(bucket.count));
    left = left.subspan(bucket.count);
    for (const ShardPlan::Segment& segment : bucket.segments) {
      Parameter& parameter = parameters_[segment.parameter];
      parameter.bind_value(values_.back().subspan(segment.offset, parameter.size()));
    }
  }
}

ParameterUpdater::Report ShardedOptimizer::step(float lr) {
  communicate([&] {
    gradients_.wait();
    rows_.finish();
  });
  const ShardSquares squares =
      squares_of(parameters_, plan_, static_cast<std::size_t>(runtime_.rank()));
  double norm = 0.0;
  communicate([&] { norm = norm_over_ranks(runtime_, squares); });
  const UpdateVerdict verdict = gate_.judge(norm);
  if (verdict.has_diverged) throw_diverged("gradients are", parameters_);
  if (!verdict.is_skipped) update(lr, verdict.gradient_scale);
  return {.gradient_norm = verdict.gradient_norm,
          .exposed = std::exchange(exposed_, Duration{0}),
          .is_skipped = verdict.is_skipped};
}

/// The forward pass needs the bucket of the first layers first, which is the last one.
void ShardedOptimizer::update(float lr, float gradient_scale) {
  optimizer_->begin_step();
  TensorNorms* const norms = optimizer_->norms();
  std::vector<TensorNorms::Squares> squares;  // empty without norms
  if (norms != nullptr) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) norms->prepare(i, gradient_scale);
    communicate(
        [&] { squares = tensor_squares_over_ranks(runtime_, *norms, plan_, parameters_.size()); });
  }
  for (std::size_t bucket = plan_.buckets().size(); bucket-- > 0;) {
    for (const ShardPlan::Segment& segment : plan_.buckets()[bucket].segments) {
      const std::size_t i = segment.parameter;
      if (norms != nullptr) {
        norms->apply(i, lr, gradient_scale, squares[i]);
      } else {
        optimizer_->update(i, lr, gradient_scale);
      }
    }
    communicate([&] { begin_gather(bucket); });
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!plan_.bucket_of(i)) optimizer_->update(i, lr, gradient_scale);
  }
}

void ShardedOptimizer::begin_gather(std::size_t bucket) {
  const std::span<float> values = values_[bucket];
  gathers_[bucket] = runtime_.all_gather_async(fmt::format("weights {}", bucket), nullptr,
                                               {values.data(), values.size(), DType::kFloat32});
  for (const ShardPlan::Segment& segment : plan_.buckets()[bucket].segments) {
    parameters_[segment.parameter].expect_value();
  }
}

void ShardedOptimizer::finish_gather(std::size_t bucket) {
  communicate([&] { gathers_[bucket]->wait(); });
  gathers_[bucket].reset();
  for (const ShardPlan::Segment& segment : plan_.buckets()[bucket].segments) {
    parameters_[segment.parameter].value_arrived();
  }
}

void ShardedOptimizer::visit_state(StateVisitor& visitor) {
  optimizer_->visit_state(visitor);
  gate_.visit_state(visitor);
  // For jobs without shards, which have compression; here there is none.
  std::vector<std::vector<std::byte>> compression(1);
  visitor.bytes_of_ranks("compression", compression);
}

PlanSummary ShardedOptimizer::plan() const {
  PlanSummary summary{.buckets = plan_.buckets().size(),
                      .fusion_bytes = bucket_bytes_,
                      .algorithm = "reduce_scatter, all_gather"};
  for (const ShardPlan::Bucket& bucket : plan_.buckets()) {
    summary.gradients += bucket.segments.size();
    for (const ShardPlan::Segment& segment : bucket.segments) {
      summary.bytes += parameters_[segment.parameter].size() * sizeof(float);
    }
  }
  return summary;
}

UpdateMemory ShardedOptimizer::memory() {
  return {.optimizer_bytes = bytes_of(*optimizer_), .gradient_bytes = gradients_.bytes()};
}

}  // namespace kolo::trainer
