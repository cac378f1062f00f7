#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "comm/base/buffer_view.h"
#include "comm/base/check.h"
#include "comm/base/dtype.h"

namespace kolo {

// Functions that divide buffers into parts. They throw UsageError, which names the operation.

[[noreturn]] inline void refuse_call(std::string_view name, std::string_view what) {
  throw UsageError(name.empty() ? std::string(what) : fmt::format("'{}': {}", name, what));
}

inline bool is_even(PartCounts counts) {
  return std::ranges::adjacent_find(counts, std::ranges::not_equal_to()) == counts.end();
}

/// Checks that the counts have a sum. A program that computes a negative count passes a huge one.
inline void check_sum(std::string_view name, PartCounts counts) {
  std::size_t total = 0;
  for (const std::size_t count : counts) {
    if (count > std::numeric_limits<std::size_t>::max() - total) {
      refuse_call(name, fmt::format("a count is {}, and the sum of all is no number of elements",
                                    std::ranges::max(counts)));
    }
    total += count;
  }
}

/// The number of elements of each rank's part.
class CallParts {
 public:
  /// Without `counts`, each of `world_size` ranks has `each` elements.
  CallParts(std::string_view name, PartCounts counts, int world_size, std::size_t each)
      : counts_(counts), ranks_(static_cast<std::size_t>(world_size)), each_(each) {
    if (!counts.empty() && counts.size() != ranks_) {
      refuse_call(name, fmt::format("there are {} counts for {} ranks", counts.size(), world_size));
    }
    check_sum(name, counts);
  }

  std::size_t of(int rank) const {
    return counts_.empty() ? each_ : counts_[static_cast<std::size_t>(rank)];
  }
  std::size_t sum() const { return before(static_cast<int>(ranks_)); }
  /// Returns the number of elements of all ranks before this one.
  std::size_t before(int rank) const {
    const auto ranks = static_cast<std::size_t>(rank);
    if (counts_.empty()) return each_ * ranks;
    const PartCounts first = counts_.first(ranks);
    return std::accumulate(first.begin(), first.end(), std::size_t{0});
  }

 private:
  PartCounts counts_;
  std::size_t ranks_;
  std::size_t each_;
};

/// The numbers of elements that one rank sends and receives in an all-to-all.
struct PairSums {
  std::size_t sent = 0, received = 0;

  PairSums(std::string_view name, PartCounts counts, int rank, int world_size) {
    const auto ranks = static_cast<std::size_t>(world_size);
    const auto me = static_cast<std::size_t>(rank);
    if (counts.size() != ranks * ranks) {
      refuse_call(name, fmt::format("there are {} counts for {} pairs of ranks", counts.size(),
                                    ranks * ranks));
    }
    check_sum(name, counts);
    for (std::size_t i = 0; i < ranks; ++i) {
      sent += counts[me * ranks + i];
      received += counts[i * ranks + me];
    }
  }
};

/// Returns the number of elements of each rank's part if `count` elements have equal parts.
inline std::size_t part_of_all(std::string_view name, std::size_t count, int world_size) {
  const auto ranks = static_cast<std::size_t>(world_size);
  if (count % ranks != 0) {
    refuse_call(name,
                fmt::format("{} elements are not as many for each of {} ranks; give the counts",
                            count, world_size));
  }
  return count / ranks;
}

/// Checks that the buffer exists and has as many elements as the counts or the other buffer
/// require.
inline void check_buffer(std::string_view name, std::string_view what, const ConstBuffer& buffer,
                         std::size_t expected, bool has_counts) {
  if (buffer.count != expected) {
    refuse_call(name, fmt::format("the {} has {} elements where the {} {}", what, buffer.count,
                                  has_counts ? "counts say" : "other buffer says", expected));
  }
  if (buffer.data == nullptr && buffer.count > 0) {
    refuse_call(name, fmt::format("the {} is null", what));
  }
}

/// Checks that any two ranks send each other equally many elements, as an all-to-all in place
/// requires. `counts` has one count per pair of ranks.
inline void check_exchange(std::string_view name, PartCounts counts, int world_size) {
  const auto ranks = static_cast<std::size_t>(world_size);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const std::size_t back = counts[i % ranks * ranks + i / ranks];
    if (counts[i] == back) continue;
    refuse_call(name, fmt::format("in place ranks {} and {} exchange as many elements both ways, "
                                  "not {} and {}",
                                  i / ranks, i % ranks, counts[i], back));
  }
}

/// Returns the address of the root's part in its buffer of all parts, after `before` elements.
inline void* own_part(const void* all, std::size_t before, DType dtype) {
  if (all == nullptr) return nullptr;  // There are no elements.
  // An input is only read; a result is writable.
  return const_cast<std::byte*>(static_cast<const std::byte*>(all)) + before * size_of(dtype);
}

}  // namespace kolo
