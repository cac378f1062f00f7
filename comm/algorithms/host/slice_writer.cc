#include "comm/algorithms/host/slice_writer.h"

#include <utility>
#include <vector>

#include "comm/base/contains.h"
#include "comm/schedule/loan.h"

namespace kolo {
namespace {

/// Writes down what one rank does with slices.
class Writer {
 public:
  Writer(ScheduleBuilder& builder, const Slices& slices) : builder_(builder), slices_(slices) {}

  void append() {
    builder_.forgo_bucket();
    builder_.set_staging_turns(slices_.turns());
    builder_.reserve_flags(slices_.flags());
    for (std::size_t i = 0; i < slices_.slots(); ++i) {
      ranges_.push_back(builder_.loan_slot(slices_.slot_count()));
    }
    for (const Slice& slice : slices_.kept()) append(slice);
  }

 private:
  void append(const Slice& slice) {
    if (slice.is_put) {
      put(slice);
    } else if (slice.holder == builder_.rank()) {
      hold(slice);
    } else if (contains(slice.readers, builder_.rank())) {
      builder_.await(slice.holder, in_slot(slice));
      if (slice.to_readers) builder_.move(home(slice), in_slot(slice));
    }
    if (slice.to_readers && !slice.is_put) {
      for (int reader : slice.readers) reply(slice, reader);
    }
    for (const auto& addend : slice.addends) {
      if (addend) read_by(slice.holder, slices_.kept()[*addend]);
    }
  }

  void put(const Slice& slice) {
    const int reader = slice.readers.front();
    if (reader == builder_.rank()) {
      builder_.offer(in_slot(slice), slices_.is_for_copies(slice));
      builder_.signal(slice.holder, in_slot(slice), Access::kWrite);
      builder_.await(slice.holder, in_slot(slice));
      builder_.move(home(slice), in_slot(slice));
    } else if (slice.holder == builder_.rank()) {
      builder_.await(reader, in_slot(slice));
      if (slice.is_contribution()) {
        builder_.move(in_slot(slice), input(slice));
      } else {
        sum(slice, in_slot(slice));
      }
      builder_.signal(reader, in_slot(slice), Access::kRead);
    }
  }

  void hold(const Slice& slice) {
    if (slice.sender) {
      builder_.recv(*slice.sender, in_slot(slice));
    } else if (!slice.addends.empty()) {
      sum(slice, slices_.needs_slot(slice) ? in_slot(slice) : home(slice));
    } else if (slices_.is_lent(slice)) {
      builder_.lend(in_slot(slice), slices_.is_for_copies(slice));
    } else if (slices_.needs_slot(slice)) {
      builder_.move(in_slot(slice), input(slice));
    }
    for (int reader : slice.readers) builder_.signal(reader, in_slot(slice), Access::kRead);
    for (int recipient : slice.recipients) builder_.send(recipient, in_slot(slice));
    if (!slice.to_holder) return;
    if (slice.is_contribution() && !slices_.are_cast()) {
      if (builder_.layout().out_of_place) builder_.move(home(slice), input(slice));
    } else if (slices_.needs_slot(slice)) {
      builder_.move(home(slice), in_slot(slice));
    }
  }

  void sum(const Slice& slice, const Range& target) {
    std::vector<Range> sources;
    for (const auto& addend : slice.addends) {
      sources.push_back(addend ? in_slot(slices_.kept()[*addend]) : own_addend(slice, target));
    }
    builder_.reduce(target, std::move(sources), slice.finishes);
  }

  /// The holder's contribution to a sum; if it is cast, in the place of the sum.
  Range own_addend(const Slice& slice, const Range& target) {
    if (!slices_.are_cast()) return input(slice);
    builder_.move(target, input(slice));
    return target;
  }

  /// `adder` has added up the slice.
  void read_by(int adder, const Slice& slice) {
    if (contains(slice.readers, adder)) reply(slice, adder);
  }

  void reply(const Slice& slice, int reader) {
    if (!slices_.needs_reply(slice, reader)) return;
    if (reader == builder_.rank()) {
      builder_.signal(slice.holder, in_slot(slice), Access::kWrite);
    } else if (slice.holder != builder_.rank()) {
      return;
    } else if (slices_.may_read_later(slice)) {
      builder_.await_previous(reader, in_slot(slice));
    } else {
      builder_.await(reader, in_slot(slice));
    }
  }

  Range in_slot(const Slice& slice) const {
    const Range& slot = ranges_[slice.slot];
    const Extent& piece = slice.piece;
    if (slice.is_put) return builder_.offered(slice.slot_owner(), piece.offset, piece.count, slot);
    if (slices_.is_lent(slice)) {
      return builder_.lent(slice.holder, piece.offset, piece.count, slot);
    }
    // Behind the note, as what is lent or offered: notes are nothing but notes.
    return Loan::elements({slice.holder, Region::kStaging, 0, piece.count, slot.offset},
                          builder_.layout().dtype);
  }
  Range home(const Slice& slice) const {
    return builder_.home(slice.piece.offset, slice.piece.count);
  }
  Range input(const Slice& slice) const {
    return builder_.input(slice.piece.offset, slice.piece.count);
  }

  ScheduleBuilder& builder_;
  const Slices& slices_;
  std::vector<Range> ranges_;  // slots
};

}  // namespace

void append_steps(ScheduleBuilder& builder, const Slices& slices) {
  Writer(builder, slices).append();
}

}  // namespace kolo
