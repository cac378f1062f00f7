#include "comm/schedule/loan.h"

namespace kolo {

static_assert(sizeof(LoanNote) <= kWireAlignment);

std::size_t loan_slot_count(std::size_t count, DType dtype) {
  return kWireAlignment / size_of(dtype) + count;
}

Loan Loan::of(const Range& lent, const BucketLayout& layout) {
  return {
      .tensors = {lent.rank, layout.out_of_place ? Region::kInput : Region::kUser, lent.offset,
                  lent.count},
      .slot = {lent.rank, Region::kStaging, lent.slot, loan_slot_count(lent.count, layout.dtype)}};
}

}  // namespace kolo
