#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "comm/base/dtype.h"

namespace kolo {

// The parts into which calls divide their buffers. Errors: UsageError that names the operation.

[[noreturn]] inline void refuse_call(std::string_view name, std::string_view what) {
  throw UsageError(name.empty() ? std::string(what) : fmt::format("'{}': {}", name, what));
}

inline bool is_even(std::span<const std::size_t> counts) {
  return std::ranges::adjacent_find(counts, std::ranges::not_equal_to()) == counts.end();
}

/// How many elements each rank's part has.
class CallParts {
 public:
  /// Without `counts`, each of `world_size` ranks has `each` elements.
  CallParts(std::string_view name, std::span<const std::size_t> counts, int world_size,
            std::size_t each)
      : counts_(counts), ranks_(static_cast<std::size_t>(world_size)), each_(each) {
    if (!counts.empty() && counts.size() != ranks_) {
      refuse_call(name, fmt::format("there are {} counts for {} ranks", counts.size(), world_size));
    }
  }

  std::size_t of(int rank) const {
    return counts_.empty() ? each_ : counts_[static_cast<std::size_t>(rank)];
  }
  std::size_t sum() const { return before(static_cast<int>(ranks_)); }
  /// The elements of all ranks before this one.
  std::size_t before(int rank) const {
    const auto ranks = static_cast<std::size_t>(rank);
    if (counts_.empty()) return each_ * ranks;
    const std::span<const std::size_t> first = counts_.first(ranks);
    return std::accumulate(first.begin(), first.end(), std::size_t{0});
  }
  /// For `Operation::counts`.
  void write_to(std::vector<std::size_t>& counts) const {
    if (is_even(counts_)) {
      counts.assign(1, of(0));
    } else {
      counts.assign(counts_.begin(), counts_.end());
    }
  }

 private:
  std::span<const std::size_t> counts_;
  std::size_t ranks_;
  std::size_t each_;
};

/// The elements that one rank sends in an all-to-all, and those that it receives.
struct PairSums {
  std::size_t sent = 0, received = 0;

  PairSums(std::string_view name, std::span<const std::size_t> counts, int rank, int world_size) {
    const auto ranks = static_cast<std::size_t>(world_size);
    const auto me = static_cast<std::size_t>(rank);
    if (counts.size() != ranks * ranks) {
      refuse_call(name, fmt::format("there are {} counts for {} pairs of ranks", counts.size(),
                                    ranks * ranks));
    }
    for (std::size_t i = 0; i < ranks; ++i) {
      sent += counts[me * ranks + i];
      received += counts[i * ranks + me];
    }
  }
};

/// Without counts: the part of one rank where `count` elements are those of all.
inline std::size_t part_of_all(std::string_view name, std::size_t count, int world_size,
                               std::span<const std::size_t> counts) {
  const auto ranks = static_cast<std::size_t>(world_size);
  if (counts.empty() && count % ranks != 0) {
    refuse_call(name,
                fmt::format("{} elements are not as many for each of {} ranks; give the counts",
                            count, world_size));
  }
  return count / ranks;
}

inline void check_count(std::string_view name, std::string_view buffer, std::size_t count,
                        std::size_t expected) {
  if (count != expected) {
    refuse_call(name, fmt::format("the {} has {} elements where the counts say {}", buffer, count,
                                  expected));
  }
}

/// In place each two ranks exchange as many elements both ways. `counts` are those of all pairs.
inline void check_exchange(std::string_view name, std::span<const std::size_t> counts,
                           int world_size) {
  const auto ranks = static_cast<std::size_t>(world_size);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const std::size_t back = counts[i % ranks * ranks + i / ranks];
    if (counts[i] == back) continue;
    refuse_call(name, fmt::format("in place ranks {} and {} exchange as many elements both ways, "
                                  "not {} and {}",
                                  i / ranks, i % ranks, counts[i], back));
  }
}

/// The part of the root in its buffer with the parts of all, `before` elements from the beginning.
inline void* own_part(const void* all, std::size_t before, DType dtype) {
  if (all == nullptr) return nullptr;  // There are no elements.
  // As an input it is only read; as a result it is there.
  return const_cast<std::byte*>(static_cast<const std::byte*>(all)) + before * size_of(dtype);
}

}  // namespace kolo
