#include "fusion/chunk_table.h"

#include <algorithm>

#include "comm/base/check.h"
#include "comm/base/dtype.h"

namespace kolo {
namespace {

std::size_t piece_count(DType a, DType b) {
  return kCopyChunkBytes / std::max(size_of(a), size_of(b));
}

// Returns null for a tensor that has no address yet.
void* element(void* data, DType dtype, std::size_t index) {
  return data == nullptr ? nullptr : static_cast<std::byte*>(data) + index * size_of(dtype);
}

}  // namespace

ChunkTable::ChunkTable(std::span<const Segment> segments, DType bucket_dtype, std::size_t count,
                       std::span<const std::size_t> cuts)
    : bucket_dtype_(bucket_dtype), cuts_(cuts.begin(), cuts.end()) {
  cuts_.insert(cuts_.end(), {0, count});
  std::sort(cuts_.begin(), cuts_.end());
  cuts_.erase(std::unique(cuts_.begin(), cuts_.end()), cuts_.end());
  check(cuts_.back() == count, "a cut lies beyond the bucket");

  runs_.push_back({.tensor_dtype = segments.empty() ? bucket_dtype : segments.front().dtype});
  std::size_t filled_to = 0;
  for (const Segment& segment : segments) {
    check(segment.offset >= filled_to && segment.offset + segment.count <= count,
          "segments of a bucket must be sorted, must not overlap and must lie in it");
    add_gap(filled_to, segment.offset);
    const auto has_its_dtype = [&](const Run& run) { return run.tensor_dtype == segment.dtype; };
    auto run = std::find_if(runs_.begin(), runs_.end(), has_its_dtype);
    if (run == runs_.end()) run = runs_.insert(run, {.tensor_dtype = segment.dtype});
    const std::size_t begin = run->chunks.size();
    filled_to = segment.offset + segment.count;
    add_pieces(*run, segment.data, segment.offset, filled_to);
    homes_.push_back({.run = static_cast<std::size_t>(run - runs_.begin()),
                      .offset = segment.offset,
                      .chunks = {begin, run->chunks.size()}});
  }
  add_gap(filled_to, count);
}

void ChunkTable::add_gap(std::size_t begin, std::size_t end) {
  add_pieces(runs_.front(), nullptr, begin, end);
}

void ChunkTable::add_pieces(Run& run, void* data, std::size_t begin, std::size_t end) {
  const std::size_t most = piece_count(run.tensor_dtype, bucket_dtype_);
  auto cut = std::upper_bound(cuts_.begin(), cuts_.end(), begin);
  for (std::size_t at = begin; at < end;) {
    const std::size_t stop = std::min({end, *cut, at + most});
    run.chunks.push_back(
        {.tensor = element(data, run.tensor_dtype, at - begin), .offset = at, .count = stop - at});
    if (stop == *cut) ++cut;
    at = stop;
  }
}

ChunkTable::Part ChunkTable::part(std::size_t run, std::size_t offset, std::size_t count) const {
  check(std::binary_search(cuts_.begin(), cuts_.end(), offset) &&
            std::binary_search(cuts_.begin(), cuts_.end(), offset + count),
        "a range of a bucket begins or ends where its chunk table has no cut");
  const std::vector<CopyChunk>& chunks = runs_.at(run).chunks;
  const auto index_of = [&](std::size_t position) {
    const auto found =
        std::ranges::lower_bound(chunks, position, std::ranges::less{}, &CopyChunk::offset);
    return static_cast<std::size_t>(found - chunks.begin());
  };
  return {index_of(offset), index_of(offset + count)};
}

std::pair<std::size_t, ChunkTable::Part> ChunkTable::rebind(std::size_t index, void* data) {
  const Home& home = homes_.at(index);
  Run& run = runs_[home.run];
  for (std::size_t i = home.chunks.begin; i < home.chunks.end; ++i) {
    CopyChunk& chunk = run.chunks[i];
    chunk.tensor = element(data, run.tensor_dtype, chunk.offset - home.offset);
  }
  return {home.run, home.chunks};
}

}  // namespace kolo
