#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <map>

#include "comm/schedule/step.h"

namespace kolo {

/// An index of the accesses that steps make to one region, for searches by range.
///
/// Accesses are grouped by the bit width of their length and sorted by offset within a group. A
/// search therefore examines few accesses that do not overlap its range, and schedules of many
/// chunks are cheap to build.
///
/// Threads: one. Cost: logarithmic in the number of accesses for each group, plus the results.
class AccessIndex {
 public:
  void add(StepId step, const Range& range, Access access) {
    if (range.count == 0) return;
    by_length_[bits_of(range.count)].emplace(range.offset, Entry{step, range.count, access});
  }

  /// Removes the accesses that lie entirely in `range`.
  void erase_inside(const Range& range) {
    for (auto& [width, accesses] : by_length_) {
      auto each = accesses.lower_bound(range.offset);
      while (each != accesses.end() && each->first < range.end()) {
        each = each->first + each->second.count <= range.end() ? accesses.erase(each) : ++each;
      }
    }
  }

  /// Calls `visit(step, access)` for each access that overlaps `range`.
  template <typename Visit>
  void for_each_overlap(const Range& range, Visit visit) const {
    if (range.count == 0) return;
    for (const auto& [width, accesses] : by_length_) {
      // The largest length with this bit width.
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

  /// Entries by the bit width of their length, which is never 0, then by offset in elements.
  std::map<std::size_t, std::multimap<std::size_t, Entry>> by_length_;
};

}  // namespace kolo
