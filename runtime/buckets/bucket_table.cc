#include "runtime/buckets/bucket_table.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "comm/base/dtype.h"

namespace kolo {
namespace {

FlagRanges::Use flag_use(const Schedule& schedule) {
  return schedule.layout.memory == MemoryKind::kDevice ? FlagRanges::Use::kLaunches
                                                       : FlagRanges::Use::kIterations;
}

/// Returns the number of uses of a bucket of `bytes` bytes whose messages may be queued at a slow
/// rank. It bounds that rank's memory to a few megabytes. A larger number shares the cost of one
/// agreement, which is a round of the tree, among more uses.
std::uint16_t uses_ahead(std::size_t bytes) {
  constexpr std::size_t kBytes = std::size_t{4} << 20, kFewest = 16, kMost = 1024;
  return static_cast<std::uint16_t>(
      std::clamp(kBytes / std::max<std::size_t>(bytes, 1), kFewest, kMost));
}

}  // namespace

std::optional<FlagRanges::Range> FlagRanges::take(std::uint32_t count, Use use) {
  std::uint32_t first = 0;
  for (std::uint32_t next = 0; next < flags_.size() && next - first < count; ++next) {
    const Flag& flag = flags_[next];
    if (flag.is_taken || flag.use.value_or(use) != use) first = next + 1;
  }
  if (limit_ - first < count) return std::nullopt;
  flags_.resize(std::max<std::size_t>(flags_.size(), first + count));
  Range range{.first = first};
  for (std::uint32_t i = first; i < first + count; ++i) {
    range.raised_to = std::max(range.raised_to, flags_[i].raised_to);
    flags_[i].is_taken = true;
    flags_[i].use = use;
  }
  return range;
}

void FlagRanges::give_back(std::uint32_t first, std::uint32_t count, std::uint64_t raised_to) {
  for (std::uint32_t i = first; i < first + count; ++i) {
    flags_[i].is_taken = false;
    flags_[i].raised_to = std::max(flags_[i].raised_to, raised_to);
  }
}

BucketTable::BucketTable(Executor& executor, const ProcessGrid& grid, const TransportLimits& limits,
                         LastActivity& acts)
    : executor_(executor),
      grid_(grid),
      acts_(acts),
      most_buckets_(limits.buckets - 1),
      arena_(limits.arena_bytes),
      flags_(limits.flags_per_peer) {}

BucketId BucketTable::add(BucketPlan plan, BucketOwner& owner, std::size_t index, std::string text,
                          std::optional<std::size_t> place) {
  Schedule& schedule = plan.schedule;
  Binding& binding = plan.binding;
  const auto flags = flags_.take(schedule.flag_count, flag_use(schedule));
  if (!flags || (unused_.empty() && buckets_.size() >= most_buckets_)) {
    throw KoloError({.code = ErrorCode::kResources,
                     .what = fmt::format("no more than {} buckets and {} flags at a time in one "
                                         "job or group; use fewer names or larger fusion_bytes and "
                                         "chunk_bytes",
                                         most_buckets_, flags_.limit())});
  }
  if (unused_.empty()) {
    unused_.insert(static_cast<BucketId>(buckets_.size()));
    buckets_.push_back(std::make_unique<Bucket>());
  }
  const BucketId id = *unused_.begin();
  const ArenaNeeds needs = arena_needs(schedule);
  const auto elsewhere = [&](int peer) { return !grid_.same_node(schedule.rank, peer); };
  std::optional<std::size_t> arena_offset;
  const std::size_t own_bytes = place ? needs.staging_bytes : needs.total();
  if (schedule.layout.memory == MemoryKind::kHost && own_bytes > 0) {
    arena_offset = arena_.allocate(own_bytes);
  }
  // A barrier has an empty bucket; ranks wait for each other only in the agreement.
  const bool is_eager = schedule.eager && schedule.layout.count > 0;
  const bool is_ahead = is_eager && !schedule.mutual && grid_.num_nodes() > 1;
  const std::size_t bytes = schedule.layout.count * size_of(schedule.layout.dtype);
  acts_.keep();
  *buckets_[id] = {.owner = &owner,
                   .index = index,
                   .arena_offset = arena_offset,
                   .is_eager = is_eager,
                   .is_mutual = schedule.mutual,
                   .uses_ahead = is_ahead ? uses_ahead(bytes) : std::uint16_t{0},
                   .network_bytes = traffic(schedule, elsewhere).bytes,
                   .text = std::move(text),
                   .first_flag = flags->first,
                   .flag_count = schedule.flag_count,
                   .flag_base = flags->raised_to,
                   .state = {.iteration = buckets_[id]->state.iteration}};
  binding.bucket = id;
  binding.first_iteration = buckets_[id]->state.iteration;
  binding.first_flag = flags->first;
  binding.flag_base = flags->raised_to;
  binding.arena_offset = place.value_or(arena_offset.value_or(0));
  binding.staging_offset = arena_offset.value_or(0) + own_bytes - needs.staging_bytes;
  unused_.erase(id);
  executor_.add(std::move(schedule), std::move(binding));
  return id;
}

bool BucketTable::is_crowded() const {
  const std::size_t in_use = buckets_.size() - unused_.size();
  return in_use > most_buckets_ / 4 * 3 || arena_.used() > arena_.capacity() / 4 * 3;
}

void BucketTable::remove(BucketId id) {
  Bucket& bucket = *buckets_[id];
  State& state = bucket.state;
  bucket.owner = nullptr;
  if (state.rejected) {
    if (bucket.is_eager && (grid_.num_nodes() > 1 || !bucket.is_mutual)) return;
    state.iteration = *state.rejected + 1;
  }
  if (!state.rejected || bucket.is_eager) unused_.insert(id);
  if (bucket.arena_offset) arena_.release(*bucket.arena_offset);
  flags_.give_back(bucket.first_flag, bucket.flag_count, bucket.flag_base + state.iteration);
  executor_.remove(id);
}

}  // namespace kolo
