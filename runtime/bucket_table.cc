#include "runtime/bucket_table.h"

#include <utility>

#include <fmt/format.h>

#include "comm/base/check.h"

namespace kolo {

BucketTable::BucketTable(Executor& executor, const ProcessGrid& grid, std::size_t arena_bytes,
                         std::uint32_t flags)
    : executor_(executor), grid_(grid), arena_(arena_bytes), flags_(flags) {}

BucketId BucketTable::add(Schedule schedule, Binding binding, BucketOwner& owner, std::size_t index,
                          std::string text) {
  if (buckets_.size() >= kMaxBuckets || flags_ - next_flag_ < schedule.flag_count) {
    throw KoloError(
        {.code = ErrorCode::kResources,
         .what = fmt::format("no more than {} buckets and {} flags in one job; use fewer "
                             "names or larger fusion_bytes and chunk_bytes",
                             kMaxBuckets, flags_)});
  }
  const auto id = static_cast<BucketId>(buckets_.size());
  const ArenaNeeds needs = arena_needs(schedule);
  const auto elsewhere = [&](int peer) { return !grid_.same_node(schedule.rank, peer); };
  std::optional<std::size_t> arena_offset;
  if (schedule.layout.memory == MemoryKind::kHost) arena_offset = arena_.allocate(needs.total());
  // An empty bucket has no signals of its own: a barrier is nothing but the agreement.
  const bool is_eager = schedule.eager && schedule.layout.count > 0;
  auto bucket = std::make_unique<Bucket>(Bucket{.owner = &owner,
                                                .index = index,
                                                .arena_offset = arena_offset,
                                                .is_eager = is_eager,
                                                .network_bytes = traffic(schedule, elsewhere).bytes,
                                                .text = std::move(text)});
  binding.bucket = id;
  binding.first_flag = next_flag_;
  binding.arena_offset = arena_offset.value_or(0);
  binding.staging_offset = binding.arena_offset + needs.bucket_bytes;
  next_flag_ += schedule.flag_count;
  buckets_.push_back(std::move(bucket));
  executor_.add(std::move(schedule), std::move(binding));
  return id;
}

void BucketTable::remove(BucketId id) {
  Bucket& bucket = *buckets_[id];
  if (bucket.arena_offset) arena_.release(*bucket.arena_offset);
  executor_.remove(id);
  bucket.owner = nullptr;
}

}  // namespace kolo
