#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "comm/transport/tag.h"

namespace kolo {

/// The buckets whose messages nobody need take from some iteration on, because all ranks gave them
/// up. Threads: one.
class AbandonedRuns {
 public:
  /// Source and ordinal of `first` do not count.
  void add(const Tag& first) { first_.push_back(unpack(pack(first))); }  // Fields wrapped.

  bool covers(const Tag& message) const {
    return std::any_of(first_.begin(), first_.end(), [&](const Tag& first) {
      return message.bucket == first.bucket && !is_before(message.iteration, first.iteration);
    });
  }

 private:
  /// Iterations of tags wrap; two that matter at a time are less than half the range apart.
  static bool is_before(std::uint32_t a, std::uint32_t b) {
    return ((a - b) >> (kTagIterationBits - 1) & 1U) != 0;
  }

  std::vector<Tag> first_;
};

}  // namespace kolo
