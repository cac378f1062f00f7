#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "comm/schedule/schedule_builder.h"

namespace kolo {

/// What a rank gives to each rank of a group and gets from it, of one tensor or of several, in one
/// call of the device's library. Nothing, unless it is told.
class PartExchange {
 public:
  PartExchange(const ScheduleBuilder& builder, std::size_t tensors, std::size_t ranks)
      : ranks_(ranks),
        given_(tensors * ranks, Range{builder.rank(), Region::kScratch}),
        got_(given_) {}

  /// `position`: of the peer in the group, which may be this rank.
  void give(std::size_t tensor, std::size_t position, const Range& source) {
    given_[tensor * ranks_ + position] = source;
  }
  void get(std::size_t tensor, std::size_t position, const Range& target) {
    got_[tensor * ranks_ + position] = target;
  }

  /// All ranks of `group` call it alike. What a rank has for itself may lie where it goes, and is
  /// there when the call is over.
  void append_to(ScheduleBuilder& builder, NativeGroup group) && {
    builder.exchange_parts(group, std::move(given_), std::move(got_));
  }

 private:
  std::size_t ranks_;
  std::vector<Range> given_, got_;
};

}  // namespace kolo
