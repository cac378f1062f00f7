#include "trainer/shards/shard_plan.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "comm/base/clock.h"
#include "comm/base/log.h"
#include "runtime/api/kolo.h"
#include "trainer/checkpoint/state_visitor.h"
#include "trainer/errors.h"
#include "trainer/loop/learner.h"
#include "trainer/loop/parameter_exchange.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/optimizer/update_gate.h"
#include "trainer/parameter_set.h"

namespace kolo::trainer {
namespace {

// Number of memory slots: one bucket is filled while another is in flight.
constexpr std::size_t kUsualSlots = 2;

/// Whether an all-reduce would add in another order than shards do. Shards are summed per node, and
/// each node's sum is rounded to the wire dtype; `direct` sums the ranks of all nodes at once.
bool sums_otherwise(const Runtime& runtime) {
  return runtime.options().algorithm == "direct" && runtime.num_nodes() > 1 &&
         runtime.num_nodes() < runtime.world_size();
}

void check_wire(const Runtime& runtime, DType wire, DType gradients) {
  if (runtime.device() != nullptr) {
    if (wire == gradients) return;
    throw_config_error(
        fmt::format("--shard with --wire {}: on a GPU shards travel in the dtype of the gradients; "
                    "leave --wire out, with --gradients bfloat16 for 16 bits, or set --shard none",
                    to_string(wire)));
  }
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

/// Averages gradients such that each rank gets only the averages that it owns: as soon as the
/// backward pass has completed a bucket, it is reduce-scattered in the background. The constructor
/// makes each rank the owner of its shards (`Parameter::own_shard`) and binds gradients to memory
/// in Kolo's arena.
///
/// With Keep::kWhole, all buckets have memory. With Keep::kShards, a bucket has memory only from
/// its first contribution in a backward pass until it is reduced; then another bucket uses this
/// memory. Gradients are float32. With the option `wire_dtype`, they are sent as bfloat16.
///
/// Collective: all ranks mark the same gradients in the same order. Threads: one. `runtime`,
///             `parameters` and `plan` outlive this object.
class ShardedGradients {
 public:
  using Keep = ShardOptions::Keep;

  ShardedGradients(Runtime& runtime, ParameterSet& parameters, const ShardPlan& plan, Keep keep)
      : runtime_(runtime),
        parameters_(parameters),
        plan_(plan),
        keep_(keep),
        buckets_(plan.buckets().size()) {
    const auto rank = static_cast<std::size_t>(runtime.rank());
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      const ShardPlan::Bucket& planned = plan.buckets()[b];
      Bucket& bucket = buckets_[b];
      const std::size_t part = plan.part_count(planned);
      bucket.left = planned.segments.size();
      if (keep == Keep::kWhole) {
        give_memory(b, allocate(planned.count));
        bucket.shard = bucket.whole.subspan(rank * part, part);
      } else {
        bucket.shard = allocate(part);
      }
      for (const ShardPlan::Segment& segment : planned.segments) {
        const ElementRange range = plan.range(segment.parameter, rank);
        const std::size_t begin = range.count == 0 ? 0 : segment.offset + range.begin - rank * part;
        parameters[segment.parameter].own_shard(range, bucket.shard.subspan(begin, range.count));
      }
    }
  }
  ~ShardedGradients() {
    try {
      wait();  // until then, the runtime uses the memory
    } catch (const KoloError& error) {
      log::debug(fmt::format("gradients end without their averages: {}", error.what()));
    }
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (!plan_.bucket_of(i)) continue;
      parameters_[i].unbind_gradient();
      parameters_[i].own_all();
    }
  }
  ShardedGradients(const ShardedGradients&) = delete;
  ShardedGradients& operator=(const ShardedGradients&) = delete;

  /// Gives memory to the bucket of a parameter. If all memory is used by buckets in flight, blocks
  /// until one of them is complete. Errors: those of the runtime.
  void open(std::size_t parameter) {
    const std::size_t bucket = plan_.bucket_of(parameter).value();
    const std::size_t slot = free_slot();
    buckets_[bucket].slot = slot;
    give_memory(bucket, slots_[slot].first(plan_.buckets()[bucket].count));
  }
  /// Marks the gradient of a parameter of the plan as complete, and starts to reduce its bucket if
  /// all its gradients are.
  void ready(std::size_t parameter) {
    const std::size_t number = plan_.bucket_of(parameter).value();
    Bucket& bucket = buckets_[number];
    if (--bucket.left > 0) return;
    bucket.left = plan_.buckets()[number].segments.size();
    const bool is_in_place = keep_ == Keep::kWhole;
    bucket.reduction = runtime_.reduce_scatter(
        fmt::format("gradients {}", number),
        is_in_place ? Tensors(bucket.whole) : Tensors(bucket.whole, bucket.shard),
        {ReduceOp::kAverage, {}, runtime_.options().wire_dtype});
    in_flight_.push_back(number);
    if (!is_in_place) take_memory(number);
  }
  /// Blocks until this rank has the averages of its shards. Errors: those of the runtime.
  void wait() {
    while (!in_flight_.empty()) finish(in_flight_.front());
  }

  /// The bytes of gradient memory that this rank has allocated so far.
  std::size_t bytes() const { return bytes_; }

 private:
  using Memory = std::shared_ptr<std::byte[]>;
  struct Bucket {
    std::span<float> whole;  // empty without memory
    std::span<float> shard;
    std::size_t left = 0;  // number of incomplete gradients
    std::optional<Ticket> reduction;
    std::optional<std::size_t> slot;  // index in `slots_` of the memory of `whole`
  };

  std::span<float> allocate(std::size_t count) {
    memories_.push_back(runtime_.allocate(count * sizeof(float)));
    bytes_ += count * sizeof(float);
    const std::span<float> memory(reinterpret_cast<float*>(memories_.back().get()), count);
    std::ranges::fill(memory, 0.0f);  // padding is sent, too
    return memory;
  }
  void give_memory(std::size_t bucket, std::span<float> whole) {
    buckets_[bucket].whole = whole;
    for (const ShardPlan::Segment& segment : plan_.buckets()[bucket].segments) {
      Parameter& parameter = parameters_[segment.parameter];
      parameter.bind_gradient(whole.subspan(segment.offset, parameter.size()));
    }
  }
  void take_memory(std::size_t bucket) {
    buckets_[bucket].whole = {};
    for (const ShardPlan::Segment& segment : plan_.buckets()[bucket].segments) {
      parameters_[segment.parameter].unbind_gradient();
    }
  }
  std::size_t free_slot() {
    if (free_slots_.empty() && slots_.size() >= kUsualSlots && !in_flight_.empty()) {
      finish(in_flight_.front());
    }
    if (free_slots_.empty()) {
      const std::size_t most =
          std::ranges::max(plan_.buckets(), {}, &ShardPlan::Bucket::count).count;
      free_slots_.push_back(slots_.size());
      slots_.push_back(allocate(most));
    }
    const std::size_t slot = free_slots_.back();
    free_slots_.pop_back();
    return slot;
  }
  void finish(std::size_t number) {
    Bucket& bucket = buckets_[number];
    bucket.reduction->wait();
    bucket.reduction.reset();
    std::erase(in_flight_, number);
    if (!bucket.slot) return;
    free_slots_.push_back(*bucket.slot);
    bucket.slot.reset();
  }

  Runtime& runtime_;
  ParameterSet& parameters_;
  const ShardPlan& plan_;
  const Keep keep_;
  std::vector<Memory> memories_;
  std::size_t bytes_ = 0;
  std::vector<Bucket> buckets_;          // buckets by index in the plan
  std::vector<std::span<float>> slots_;  // memory for any bucket
  std::vector<std::size_t> free_slots_;
  std::vector<std::size_t> in_flight_;  // numbers of buckets, oldest reduction first
};

/// Updates parameters by shards. Each rank gets the averages of the elements that it owns, keeps
/// optimizer state only for these, updates them, and sends the new values to all ranks. Values are
/// sent in the background, those of the first layers first; the next forward pass waits for each
/// bucket when it first reads it. A step sends as many bytes as an all-reduce. A bfloat16 wire
/// halves the bytes of gradients; values stay float32. If sums have the same bits as an all-reduce,
/// values have the same bits as an update on all ranks (see the README of this folder).
///
/// Tables with sparse gradients are updated on every rank, as without shards.
///
/// Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter
///         Models", SC 2020, stages 1 and 2.
class ShardedOptimizer final : public ParameterUpdater {
 public:
  using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(ParameterSet&)>;

  ShardedOptimizer(Runtime& runtime, ParameterSet& parameters, const MakeOptimizer& make,
                   const ShardOptions& options, const Clock& clock)
      : runtime_(runtime),
        parameters_(parameters),
        clock_(clock),
        bucket_bytes_(checked_bucket_bytes(runtime, DType::kFloat32)),
        plan_(parameters, static_cast<std::size_t>(runtime.world_size()), bucket_bytes_),
        gate_(options.gate),
        gradients_(runtime, parameters, plan_, options.keep),
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
  ~ShardedOptimizer() override {
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
  ShardedOptimizer(const ShardedOptimizer&) = delete;
  ShardedOptimizer& operator=(const ShardedOptimizer&) = delete;

  float loss_scale() const override { return gate_.loss_scale(); }
  void await_averages() override {
    communicate([&] {
      gradients_.wait();
      rows_.finish();
    });
  }
  UpdateVerdict clip() override {
    const ShardSquares squares =
        squares_of(parameters_, plan_, static_cast<std::size_t>(runtime_.rank()));
    double norm = 0.0;
    communicate([&] { norm = norm_over_ranks(runtime_, squares); });
    const UpdateVerdict verdict = gate_.judge(norm);
    if (verdict.has_diverged) throw_diverged("gradients are", parameters_);
    return verdict;
  }
  StepReport update(float lr, const UpdateVerdict& verdict) override {
    if (!verdict.is_skipped) update_all(lr, verdict.gradient_scale);
    return {.gradient_norm = verdict.gradient_norm,
            .exposed = std::exchange(exposed_, Duration{0}),
            .is_skipped = verdict.is_skipped};
  }
  void visit_state(StateVisitor& visitor) override {
    optimizer_->visit_state(visitor);
    gate_.visit_state(visitor);
    visit_no_compression(visitor);
  }
  PlanSummary plan() const override {
    return summarize(plan_, parameters_, bucket_bytes_, DType::kFloat32);
  }
  std::vector<CompressionStats> compression_stats() const override { return {}; }
  UpdateMemory memory() override {
    return {.optimizer_bytes = bytes_of(*optimizer_), .gradient_bytes = gradients_.bytes()};
  }

 private:
  void bind_values() {
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
  // Updates buckets in reverse order, because the forward pass first needs the last bucket, which
  // has the first layers.
  void update_all(float lr, float gradient_scale) {
    optimizer_->begin_step();
    TensorNorms* const norms = optimizer_->norms();
    std::vector<TensorNorms::Squares> squares;  // empty if the optimizer uses no norms
    if (norms != nullptr) {
      for (std::size_t i = 0; i < parameters_.size(); ++i) norms->prepare(i, gradient_scale);
      communicate([&] {
        squares = tensor_squares_over_ranks(runtime_, *norms, plan_, parameters_.size());
      });
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
  /// Starts sending the new values of a bucket to all ranks.
  void begin_gather(std::size_t bucket) {
    gathers_[bucket] = runtime_.all_gather(fmt::format("weights {}", bucket), values_[bucket]);
    for (const ShardPlan::Segment& segment : plan_.buckets()[bucket].segments) {
      parameters_[segment.parameter].expect_value();
    }
  }
  void finish_gather(std::size_t bucket) {
    communicate([&] { gathers_[bucket]->wait(); });
    gathers_[bucket].reset();
    for (const ShardPlan::Segment& segment : plan_.buckets()[bucket].segments) {
      parameters_[segment.parameter].value_arrived();
    }
  }
  /// Calls `call`, which calls the runtime, and counts its time as exposed communication.
  template <typename Call>
  void communicate(Call&& call) {
    const TimePoint begin = clock_.now();
    call();
    exposed_ += clock_.now() - begin;
  }

  Runtime& runtime_;
  ParameterSet& parameters_;
  const Clock& clock_;
  const std::size_t bucket_bytes_;
  const ShardPlan plan_;
  UpdateGate gate_;
  Duration exposed_{0};  // exposed communication since the last step
  ShardedGradients gradients_;
  RowExchange rows_;
  std::shared_ptr<std::byte[]> memory_;         // memory of all values
  std::vector<std::span<float>> values_;        // values by bucket
  std::vector<std::optional<Ticket>> gathers_;  // set while the values of a bucket are in flight
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace

std::size_t checked_bucket_bytes(const Runtime& runtime, DType gradients) {
  const Options& options = runtime.options();
  if (options.compression != "none" && !options.compression.empty()) {
    throw_config_error(fmt::format(
        "--shard with --compression {}: shards are sums of dense gradients; set --compression "
        "none, with --wire bfloat16 for 16 bits, or --shard none",
        options.compression));
  }
  check_wire(runtime, options.wire_dtype.value_or(gradients), gradients);
  return shard_bucket_bytes(options);
}

std::unique_ptr<ParameterUpdater> make_sharded_optimizer(
    Runtime& runtime, ParameterSet& parameters,
    const std::function<std::unique_ptr<Optimizer>(ParameterSet&)>& make,
    const ShardOptions& options, const Clock& clock) {
  return std::make_unique<ShardedOptimizer>(runtime, parameters, make, options, clock);
}

}  // namespace kolo::trainer
