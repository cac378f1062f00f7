#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "comm/schedule/bucket_layout.h"
#include "comm/schedule/step.h"

namespace kolo {

/// The elements of a slot for `count` lent or offered ones.
inline std::size_t loan_slot_count(std::size_t count, DType dtype) {
  return kWireAlignment / size_of(dtype) + count;
}

/// A range of Region::kLent or Region::kOffered stands for tensors of a rank, and for a slot with a
/// note that says where its peers find them. Contributions are lent, to be read; places of results
/// are offered, to be written. They are used where they are if peers reach them well there: mapped
/// in the arena or, for copies and in huge pages, through the system. Else the elements go through
/// the slot: whoever lends copies them to it, as `Binding::lend_stores` says, and whoever has
/// offered copies them from it when it unpacks the range. Only the run knows which it was, so
/// whoever touches the range depends on both.
///
///   slot   note | elements
///          ^ kWireAlignment bytes
struct Loan {
  Range tensors;  ///< Lent from kInput if the bucket is out of place; else in kUser.
  Range slot;     ///< In kStaging: the note and the elements.

  /// Whether a range is one of these.
  static bool is_loan(const Range& range) {
    return range.region == Region::kLent || range.region == Region::kOffered;
  }
  /// Of elements of a bucket of this layout.
  static Loan of(const Range& range, const BucketLayout& layout) {
    const bool is_input = range.region == Region::kLent && layout.out_of_place;
    const Region region = is_input ? Region::kInput : Region::kUser;
    return {.tensors = {range.rank, region, range.offset, range.count},
            .slot = {range.rank, Region::kStaging, range.slot,
                     loan_slot_count(range.count, layout.dtype)}};
  }
  /// The elements of the slot.
  static Range elements(const Range& range, DType dtype) {
    return {range.rank, Region::kStaging, range.slot + loan_slot_count(0, dtype), range.count};
  }
};

/// Where lent or offered elements are.
struct LoanNote {
  /// Of element 0 of the bucket, as if it lay before them: bytes from the beginning of their rank's
  /// memory (see `Transport::memory`); in private memory its address in their process.
  std::int64_t origin = 0;
  std::int32_t is_private = 0;
  /// The number of peers that write to what is offered, and `kRevoked` once it is taken back.
  std::atomic<std::uint32_t> writers = 0;

  static constexpr std::uint32_t kRevoked = 1U << 31;
};
static_assert(sizeof(LoanNote) <= kWireAlignment);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// A visit to a place that a peer has offered, for as long as this lives: the peer, which may give
/// the operation up while this rank is still to begin it, takes no offer back meanwhile. Threads:
/// any.
class OfferVisit {
 public:
  explicit OfferVisit(LoanNote& note) : writers_(note.writers) {
    is_allowed_ = (writers_.fetch_add(1, std::memory_order_acquire) & LoanNote::kRevoked) == 0;
  }
  ~OfferVisit() { writers_.fetch_sub(1, std::memory_order_release); }
  OfferVisit(const OfferVisit&) = delete;
  OfferVisit& operator=(const OfferVisit&) = delete;

  /// Nothing may be written if not.
  bool is_allowed() const { return is_allowed_; }

 private:
  std::atomic<std::uint32_t>& writers_;
  bool is_allowed_;
};

}  // namespace kolo
