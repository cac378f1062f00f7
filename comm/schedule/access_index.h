#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <map>

#include "comm/schedule/step.h"

namespace kolo {

/// The accesses of steps to a region, indexed by range.
///
/// Accesses of similar lengths are stored together, by offset, so that a search for a range
/// examines few others: schedules of many chunks stay cheap to build.
///
/// Threads: one. Cost: logarithmic in the number of accesses per power of two of length, plus
///                     the results.
class AccessIndex {
 public:
  void add(StepId step, const Range& range, Access access) {
    if (range.count == 0) return;
    by_length_[bits_of(range.count)].emplace(range.offset, Entry{step, range.count, access});
  }

  /// Removes accesses that lie entirely in `range`.
  void erase_inside(const Range& range) {
    for (auto& [width, accesses] : by_length_) {
      auto each = accesses.lower_bound(range.offset);
      while (each != accesses.end() && each->first < range.end()) {
        each = each->first + each->second.count <= range.end() ? accesses.erase(each) : ++each;
      }
    }
  }

  /// Calls `visit(step, access)` for accesses that overlap `range`.
  template <typename Visit>
  void for_each_overlap(const Range& range, Visit visit) const {
    if (range.count == 0) return;
    for (const auto& [width, accesses] : by_length_) {
      // No access in this class is longer.
      const std::size_t longest = (std::size_t{1} << (width - 1)) * 2 - 1;
      auto each = accesses.lower_bound(range.offset - std::min(range.offset, longest));
      for (; each != accesses.end() && each->first < range.end(); ++each) {
        if (each->first + each->second.count > range.offset) {
          visit(each->second.step, each->second.access);
        }
      }
    }
  }

 private:
  struct Entry {
    StepId step;
    std::size_t count;
    Access access;
  };

  static std::size_t bits_of(std::size_t count) {
    return static_cast<std::size_t>(std::bit_width(count));
  }

  /// By bit width of the length (not 0), then by offset.
  std::map<std::size_t, std::multimap<std::size_t, Entry>> by_length_;
};

}  // namespace kolo
