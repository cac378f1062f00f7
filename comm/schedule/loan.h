#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "comm/schedule/bucket_layout.h"
#include "comm/schedule/step.h"

namespace kolo {

/// Slot size, in elements, for a loan of `count` elements.
inline std::size_t loan_slot_count(std::size_t count, DType dtype) {
  return kWireAlignment / size_of(dtype) + count;
}

/// A range of Region::kLent or Region::kOffered stands for tensors of a rank, together with a slot
/// whose note says where peers find the elements. Contributions are lent for reading; results are
/// offered for writing. Peers access the tensors directly if that is efficient: memory mapped in
/// the arena or, for plain copies and in huge pages, private memory through system calls. Otherwise
/// the elements go through the slot: a lender copies them to it, with `Binding::lend_stores`, and a
/// rank that offers copies them from it when it unpacks the range. Which way is taken is known only
/// at run time, so a step that uses the range depends on both tensors and slot.
///
///   slot   note | elements
///          ^ kWireAlignment bytes
struct Loan {
  Range tensors;  ///< Lent: in kInput if the bucket is out of place, otherwise in kUser. Offered:
                  ///< in kUser.
  Range slot;     ///< In kStaging: the note, then the elements.

  /// Whether a range is lent or offered.
  static bool is_loan(const Range& range) {
    return range.region == Region::kLent || range.region == Region::kOffered;
  }
  /// The loan of a range of a bucket with this layout.
  static Loan of(const Range& range, const BucketLayout& layout) {
    const bool is_input = range.region == Region::kLent && layout.out_of_place;
    const Region region = is_input ? Region::kInput : Region::kUser;
    return {.tensors = {range.rank, region, range.offset, range.count},
            .slot = {range.rank, Region::kStaging, range.slot,
                     loan_slot_count(range.count, layout.dtype)}};
  }
  /// The elements within the slot.
  static Range elements(const Range& range, DType dtype) {
    return {range.rank, Region::kStaging, range.slot + loan_slot_count(0, dtype), range.count};
  }
};

/// Location of lent or offered elements.
struct LoanNote {
  /// Virtual location of element 0 of the bucket, extrapolated from the elements. In the rank's
  /// arena: bytes from the beginning of its memory (see `Transport::memory`). In private memory:
  /// the address in its process.
  std::int64_t origin = 0;
  std::int32_t is_private = 0;
  /// Number of peers that write to the offered memory, plus `kRevoked` once the offer is revoked.
  std::atomic<std::uint32_t> writers = 0;

  static constexpr std::uint32_t kRevoked = 1U << 31;
};
static_assert(sizeof(LoanNote) <= kWireAlignment);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// Guards writes to memory that a peer has offered, during its own lifetime. The peer may give the
/// operation up before this rank begins it, but waits for such writes before it takes its tensors
/// back. Threads: any.
class OfferVisit {
 public:
  explicit OfferVisit(LoanNote& note) : writers_(note.writers) {
    is_allowed_ = (writers_.fetch_add(1, std::memory_order_acquire) & LoanNote::kRevoked) == 0;
  }
  ~OfferVisit() { writers_.fetch_sub(1, std::memory_order_release); }
  OfferVisit(const OfferVisit&) = delete;
  OfferVisit& operator=(const OfferVisit&) = delete;

  /// If false, nothing may be written.
  bool is_allowed() const { return is_allowed_; }

 private:
  std::atomic<std::uint32_t>& writers_;
  bool is_allowed_;
};

}  // namespace kolo
