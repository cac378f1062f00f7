#include "trainer/loop/async_updater.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "runtime/store/parameter_store.h"
#include "trainer/errors.h"
#include "trainer/kernels/kernels.h"
#include "trainer/loop/parameter_exchange.h"
#include "trainer/shards/shard_plan.h"
#include "trainer/tensor.h"

namespace kolo::trainer {
namespace {

constexpr const char* kKey = "weights";

void require_float32(const Options& options) {
  const DType wire = options.wire_dtype.value_or(DType::kFloat32);
  const bool is_whole = options.compression.empty() || options.compression == "none";
  if (is_whole && wire == DType::kFloat32) return;
  throw_config_error(
      fmt::format("--exchange async with --compression {} and --wire {}: whole float32 gradients "
                  "travel; set --compression none, and --wire float32",
                  options.compression, to_string(wire)));
}

/// The values and gradients of parameters, in the places of a plan with one bucket.
struct Places {
  explicit Places(const ShardPlan& plan)
      : weights({plan.buckets()[0].count}), gradients({plan.buckets()[0].count}) {}

  void bind(Parameter& parameter, std::size_t offset) {
    parameter.bind_value(weights.span().subspan(offset, parameter.size()));
    parameter.bind_gradient(gradients.span().subspan(offset, parameter.size()));
  }

  Tensor weights, gradients;
};

/// The part of the weights that this rank owns. Optimizers see whole tensors, of which they update
/// this part.
///
/// Threads: one at a time.
class OwnPart {
 public:
  OwnPart(const ParameterSet& model, const ShardPlan& plan, int rank, const MakeOptimizer& make)
      : places_(plan) {
    const std::vector<ShardPlan::Segment>& segments = plan.buckets()[0].segments;
    for (auto segment = segments.rbegin(); segment != segments.rend(); ++segment) {
      const Parameter& like = model[segment->parameter];
      Parameter& parameter = parameters_.add(like.name(), like.shape(), {});
      places_.bind(parameter, segment->offset);
      std::ranges::copy(like.value(), parameter.value().begin());
      const ElementRange range = plan.range(segment->parameter, static_cast<std::size_t>(rank));
      parameter.own_shard(range, parameter.gradient().subspan(range.begin, range.count));
    }
    optimizer_ = make(parameters_);
    if (optimizer_->norms() == nullptr) return;
    throw_config_error(
        "--exchange async: this optimizer takes norms of whole tensors, of which owners have "
        "parts; set --optimizer sgd or adamw");
  }

  /// Takes the step of one push.
  void apply(const StoreUpdate& update) {
    const auto* const pushed = static_cast<const float*>(update.pushed.data);
    std::copy_n(pushed, update.pushed.count, places_.gradients.data() + update.offset);
    optimizer_->step(static_cast<float>(update.rate), 1.0f);
    std::copy_n(places_.weights.data() + update.offset, update.value.count,
                static_cast<float*>(update.value.data));
  }

  Optimizer& optimizer() { return *optimizer_; }
  std::size_t bytes() { return 2 * places_.weights.size() * sizeof(float) + bytes_of(*optimizer_); }

 private:
  Places places_;
  ParameterSet parameters_{0};
  std::unique_ptr<Optimizer> optimizer_;
};

class AsyncUpdater final : public ParameterUpdater {
 public:
  AsyncUpdater(Runtime& runtime, ParameterSet& parameters, MakeOptimizer make,
               const AsyncOptions& options, const Clock& clock)
      : runtime_(runtime),
        parameters_(parameters),
        make_(std::move(make)),
        staleness_(options.staleness),
        clock_(clock),
        gate_(options.gate),
        plan_(parameters, static_cast<std::size_t>(runtime.world_size()),
              std::numeric_limits<std::size_t>::max()),
        places_(plan_) {
    require_float32(runtime.options());
    broadcast_values(runtime, parameters);
    for (const ShardPlan::Segment& segment : plan_.buckets()[0].segments) {
      places_.bind(parameters[segment.parameter], segment.offset);
    }
    share_weights();
  }
  ~AsyncUpdater() override {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      parameters_[i].unbind_value();
      parameters_[i].unbind_gradient();
    }
  }

  float loss_scale() const override { return gate_.loss_scale(); }
  void await_averages() override {}  // there are none
  UpdateVerdict clip() override {
    const UpdateVerdict verdict = gate_.judge(gradient_norm(parameters_));
    if (verdict.has_diverged) throw_diverged("gradients are", parameters_);
    return verdict;
  }
  StepReport update(float lr, const UpdateVerdict& verdict) override {
    const TimePoint begin = clock_.now();
    const std::span<float> gradients = places_.gradients.span();
    if (verdict.gradient_scale != 1.0f) scale(gradients, verdict.gradient_scale);
    store_->push(kKey, ConstBuffer(gradients), lr / static_cast<float>(runtime_.world_size()));
    ++pushes_;
    pull(0);
    return {.gradient_norm = verdict.gradient_norm, .exposed = clock_.now() - begin};
  }
  /// Ranks may be late by more than the time limit of a wait; a lost rank ends the wait.
  std::chrono::nanoseconds meet() override {
    const TimePoint begin = clock_.now();
    for (bool waits = true; waits;) {
      try {
        pull(pushes_);
        waits = false;
      } catch (const KoloError& error) {
        if (error.error().code != ErrorCode::kTimeout) throw;
      }
    }
    runtime_.barrier().wait();  // until then no rank pushes
    return clock_.now() - begin;
  }
  std::uint64_t network_bytes_sent() const override { return store_->network_bytes_sent(); }
  void visit_state(StateVisitor& visitor) override {
    if (visitor.is_restoring()) share_weights();
    own_->optimizer().visit_state(visitor);
    gate_.visit_state(visitor);
    visit_no_compression(visitor);
    if (!visitor.is_restoring()) runtime_.barrier().wait();  // until then no rank pushes
  }
  PlanSummary plan() const override {
    const std::size_t bytes = parameters_.element_count() * sizeof(float);
    return {.gradients = parameters_.size(),
            .buckets = 1,
            .bytes = bytes,
            .fusion_bytes = bytes,
            .algorithm = "push, pull"};
  }
  std::vector<CompressionStats> compression_stats() const override { return {}; }
  UpdateMemory memory() override {
    return {.optimizer_bytes = own_->bytes(), .gradient_bytes = plan().bytes};
  }

 private:
  /// Gives all owners their parts of rank 0's weights, with a new optimizer. Collective.
  void share_weights() {
    store_.reset();
    own_.emplace(parameters_, plan_, runtime_.rank(), make_);
    store_ = std::make_unique<ParameterStore>(runtime_, StoreOptions{.type = "dist_async",
                                                                     .staleness = staleness_,
                                                                     .split_bytes = 0,
                                                                     .group = {.name = kKey}});
    store_->set_updater([this](const StoreUpdate& update) { own_->apply(update); });
    store_->init(kKey, ConstBuffer(places_.weights.span()), plan_.part_count(plan_.buckets()[0]));
    pushes_ = 0;
  }
  void pull(std::uint64_t pushes) {
    store_->pull(kKey, places_.weights.span(), pushes);
    for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i].value();  // new versions
  }

  Runtime& runtime_;
  ParameterSet& parameters_;
  const MakeOptimizer make_;
  const std::optional<std::uint64_t> staleness_;
  const Clock& clock_;
  UpdateGate gate_;
  const ShardPlan plan_;  // has one bucket, of which each rank owns a part
  Places places_;
  std::optional<OwnPart> own_;
  std::uint64_t pushes_ = 0;
  std::unique_ptr<ParameterStore> store_;  // destroyed first, because its thread uses `own_`
};

}  // namespace

std::unique_ptr<ParameterUpdater> make_async_updater(Runtime& runtime, ParameterSet& parameters,
                                                     MakeOptimizer make,
                                                     const AsyncOptions& options,
                                                     const Clock& clock) {
  return std::make_unique<AsyncUpdater>(runtime, parameters, std::move(make), options, clock);
}

}  // namespace kolo::trainer
