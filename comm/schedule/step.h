#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kolo {

/// A part of a rank's memory that steps name. Offsets in kBucket and kUser are bucket elements.
enum class Region : std::uint8_t {
  kBucket,   ///< In the arena: peers of the node may read it.
  kScratch,  ///< Private to the rank and the run.
  kUser,     ///< The caller's tensors, seen through the pack list of a staged bucket.
};

/// `count` elements at `offset` of a region of `rank`'s memory.
struct Range {
  int rank = 0;
  Region region = Region::kBucket;
  std::size_t offset = 0;
  std::size_t count = 0;

  std::size_t end() const { return offset + count; }
  bool overlaps(const Range& other) const {
    return rank == other.rank && region == other.region && offset < other.end() &&
           other.offset < end();
  }
  friend bool operator==(const Range&, const Range&) = default;
};

/// How a step, or whoever it hands memory to, uses a range.
enum class Access : std::uint8_t { kRead, kWrite };

enum class StepKind : std::uint8_t {
  kSend,    ///< sources[0] to `peer`, as its message number `ordinal` from this rank.
  kRecv,    ///< Message number `ordinal` from `peer` into `target`.
  kSignal,  ///< Raises flag `ordinal` at `peer`.
  kAwait,   ///< Waits for flag `ordinal` from `peer`.
  kReduce,  ///< target = sources[0] op sources[1] op ..., in this order.
  kCopy,    ///< target = sources[0].
  kPack,    ///< target (bucket) = sources[0] (user), cast.
  kUnpack,  ///< target (user) = sources[0] (a bucket, possibly a peer's), cast.
};

using StepId = std::uint32_t;

/// One line of a schedule. Steps run in any order that respects `after`.
struct Step {
  StepKind kind = StepKind::kCopy;
  int peer = -1;
  std::uint32_t ordinal = 0;
  Range target = {};
  std::vector<Range> sources = {};
  /// kReduce only: this is the last operation on these elements, so the scale belongs to it.
  bool finishes = false;
  std::vector<StepId> after = {};  ///< Steps of the same rank that must be complete first.
};

}  // namespace kolo
