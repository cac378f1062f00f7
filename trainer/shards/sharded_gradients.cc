#include "trainer/shards/sharded_gradients.h"

#include <algorithm>

#include <fmt/format.h>

#include "comm/base/log.h"

namespace kolo::trainer {
namespace {

// One that is filled while another one is on its way.
constexpr std::size_t kUsualSlots = 2;

}  // namespace

ShardedGradients::ShardedGradients(Runtime& runtime, ParameterSet& parameters,
                                   const ShardPlan& plan, Keep keep)
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

ShardedGradients::~ShardedGradients() {
  try {
    wait();  // since the runtime uses the memory until then
  } catch (const KoloError& error) {
    log::debug(fmt::format("gradients end without their averages: {}", error.what()));
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!plan_.bucket_of(i)) continue;
    parameters_[i].unbind_gradient();
    parameters_[i].own_all();
  }
}

std::span<float> ShardedGradients::allocate(std::size_t count) {
  memories_.push_back(runtime_.allocate(count * sizeof(float)));
  bytes_ += count * sizeof(float);
  const std::span<float> memory(reinterpret_cast<float*>(memories_.back().get()), count);
  std::ranges::fill(memory, 0.0f);  // padding is sent, too
  return memory;
}

void ShardedGradients::give_memory(std::size_t bucket, std::span<float> whole) {
  buckets_[bucket].whole = whole;
  for (const ShardPlan::Segment& segment : plan_.buckets()[bucket].segments) {
    Parameter& parameter = parameters_[segment.parameter];
    parameter.bind_gradient(whole.subspan(segment.offset, parameter.size()));
  }
}

void ShardedGradients::take_memory(std::size_t bucket) {
  buckets_[bucket].whole = {};
  for (const ShardPlan::Segment& segment : plan_.buckets()[bucket].segments) {
    parameters_[segment.parameter].unbind_gradient();
  }
}

void ShardedGradients::open(std::size_t parameter) {
  const std::size_t bucket = plan_.bucket_of(parameter).value();
  const std::size_t slot = free_slot();
  buckets_[bucket].slot = slot;
  give_memory(bucket, slots_[slot].first(plan_.buckets()[bucket].count));
}

std::size_t ShardedGradients::free_slot() {
  if (free_slots_.empty() && slots_.size() >= kUsualSlots && !in_flight_.empty()) {
    finish(in_flight_.front());
  }
  if (free_slots_.empty()) {
    const std::size_t most = std::ranges::max(plan_.buckets(), {}, &ShardPlan::Bucket::count).count;
    free_slots_.push_back(slots_.size());
    slots_.push_back(allocate(most));
  }
  const std::size_t slot = free_slots_.back();
  free_slots_.pop_back();
  return slot;
}

void ShardedGradients::ready(std::size_t parameter) {
  const std::size_t number = plan_.bucket_of(parameter).value();
  Bucket& bucket = buckets_[number];
  if (--bucket.left > 0) return;
  bucket.left = plan_.buckets()[number].segments.size();
  const bool is_in_place = keep_ == Keep::kWhole;
  const std::span<float> result = is_in_place ? bucket.whole : bucket.shard;
  bucket.reduction = runtime_.reduce_scatter_async(
      fmt::format("gradients {}", number), is_in_place ? nullptr : bucket.whole.data(),
      {result.data(), result.size(), DType::kFloat32},
      {ReduceOp::kAverage, {}, runtime_.options().wire_dtype});
  in_flight_.push_back(number);
  if (!is_in_place) take_memory(number);
}

void ShardedGradients::wait() {
  while (!in_flight_.empty()) finish(in_flight_.front());
}

void ShardedGradients::finish(std::size_t number) {
  Bucket& bucket = buckets_[number];
  bucket.reduction->wait();
  bucket.reduction.reset();
  std::erase(in_flight_, number);
  if (!bucket.slot) return;
  free_slots_.push_back(*bucket.slot);
  bucket.slot.reset();
}

}  // namespace kolo::trainer
