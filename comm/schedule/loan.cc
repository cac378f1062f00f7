#include "comm/schedule/loan.h"

namespace kolo {

static_assert(sizeof(LoanNote) <= kWireAlignment);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

std::size_t loan_slot_count(std::size_t count, DType dtype) {
  return kWireAlignment / size_of(dtype) + count;
}

Loan Loan::of(const Range& range, const BucketLayout& layout) {
  const bool is_input = range.region == Region::kLent && layout.out_of_place;
  return {
      .tensors = {range.rank, is_input ? Region::kInput : Region::kUser, range.offset, range.count},
      .slot = {range.rank, Region::kStaging, range.slot,
               loan_slot_count(range.count, layout.dtype)}};
}

}  // namespace kolo
