#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/schedule/bucket_layout.h"
#include "comm/schedule/step.h"

namespace kolo {

/// What a range of Region::kLent stands for. A pack of tensors to such a range lends them: it
/// leaves a note that says where the elements are. They stay where they are if peers can read them
/// there, mapped in the arena or, to copy them, through the system. Else they are copied to the
/// slot, as `Binding::lend_stores` says. Only the run knows which it was, so whoever reads the
/// range depends on both.
///
///   slot   note | copy
///          ^ kWireAlignment bytes
struct Loan {
  Range tensors;  ///< In kUser, or of a bucket out of place in kInput.
  Range slot;     ///< In kStaging: the note and the copy.

  /// Of elements of a bucket of this layout.
  static Loan of(const Range& lent, const BucketLayout& layout);
};

/// The elements of a slot for `count` lent ones.
std::size_t loan_slot_count(std::size_t count, DType dtype);

/// Where lent elements are.
struct LoanNote {
  /// Of element 0 of the bucket, as if it lay before them: bytes from the beginning of their rank's
  /// memory (see `Transport::memory`); in private memory its address in their process.
  std::int64_t origin = 0;
  std::int64_t is_private = 0;
};

}  // namespace kolo
