#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "comm/schedule/schedule_builder.h"

namespace kolo {

/// One call of the device's library in which each rank of a group may give elements to each, of one
/// tensor or of several. A rank gives and gets nothing unless it is told.
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

  /// Appends the call. All ranks of `group` do so alike. A rank may get from itself what it gives
  /// where it lies: such elements stay, and later steps that use them wait for the call.
  void append_to(ScheduleBuilder& builder, NativeGroup group) && {
    builder.exchange_parts(group, std::move(given_), std::move(got_));
  }

 private:
  std::size_t ranks_;
  std::vector<Range> given_, got_;
};

}  // namespace kolo
