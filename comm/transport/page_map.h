#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/base/unique_handle.h"

namespace kolo {

/// The pages of this process's memory, as far as Linux tells (since 6.7). An answer is a hint:
/// pages change, and the last ones that were asked for are remembered.
///
/// Threads: one at a time.
class PageMap {
 public:
  PageMap();

  /// Whether a range is all in huge pages, present and mapped as such. Where Linux does not tell:
  /// true. Takes about half a microsecond, and nothing in a range that is remembered.
  bool are_huge(std::span<const std::byte> memory);

 private:
  struct Range {
    std::uint64_t begin = 0, end = 0;
    bool holds(const Range& other) const { return begin <= other.begin && other.end <= end; }
  };

  /// The part from its beginning on that is in huge pages; all of it if Linux does not tell.
  Range huge_part(const Range& range) const;

  FileDescriptor file_;
  Range huge_, small_;  // remembered
};

}  // namespace kolo
