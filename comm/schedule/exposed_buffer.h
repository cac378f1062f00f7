#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "comm/schedule/bucket_layout.h"
#include "comm/schedule/step.h"

namespace kolo {

/// Returns the size, in elements, of the slot for an exposed buffer of `count` elements.
inline std::size_t exposure_slot_count(std::size_t count, DType dtype) {
  return kWireAlignment / size_of(dtype) + count;
}

/// A range of Region::kExposedInput or Region::kExposedResult stands for tensors of a rank and for
/// a slot in its staging memory. A contribution is exposed for peers to read; a result is exposed
/// for peers to write. A note in the slot tells peers where the elements are.
///
/// Peers access the tensors directly if that is efficient: if the tensors are in mapped memory, or
/// if they are private memory in huge pages that peers only copy, through system calls. Otherwise
/// the elements pass through the slot. A rank that exposes a contribution then copies it to the
/// slot, with `Binding::exposure_stores`; a rank that exposes a result copies it from the slot when
/// it unpacks the range. Each run decides this anew, so steps that use the range depend on both
/// tensors and slot.
///
///   slot   note | elements
///          ^ kWireAlignment bytes
struct ExposedBuffer {
  Range tensors;  ///< The exposed tensors. A contribution: in kInput if the bucket is out of place,
                  ///< otherwise in kUser. A result: in kUser.
  Range slot;     ///< The slot in kStaging, which holds the note, then the elements.

  /// Whether `range` is in an exposed region.
  static bool is_exposed(const Range& range) {
    return range.region == Region::kExposedInput || range.region == Region::kExposedResult;
  }
  /// Returns the exposed buffer that `range` stands for.
  static ExposedBuffer of(const Range& range, const BucketLayout& layout) {
    const bool is_input = range.region == Region::kExposedInput && layout.out_of_place;
    const Region region = is_input ? Region::kInput : Region::kUser;
    return {.tensors = {range.rank, region, range.offset, range.count},
            .slot = {range.rank, Region::kStaging, range.slot,
                     exposure_slot_count(range.count, layout.dtype)}};
  }
  /// Returns the part of the slot that holds elements.
  static Range elements(const Range& range, DType dtype) {
    return {range.rank, Region::kStaging, range.slot + exposure_slot_count(0, dtype), range.count};
  }
};

/// The note at the start of a slot, which tells peers where the exposed elements are.
struct ExposureNote {
  /// Location of element 0 of the bucket, extrapolated from the exposed elements, so it may be
  /// outside any memory. In mapped memory it is an offset in bytes from the rank's arena (see
  /// `Transport::memory`); in private memory it is an address in the rank's process.
  std::int64_t origin = 0;
  std::int32_t is_private = 0;
  /// Number of peers that write to the exposed memory, plus `kRevoked` once it is revoked.
  std::atomic<std::uint32_t> writers = 0;

  static constexpr std::uint32_t kRevoked = 1U << 31;
};
static_assert(sizeof(ExposureNote) <= kWireAlignment);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// Guards a write to memory that a peer exposes, from construction to destruction. If the peer has
/// dropped the operation before, the write is not allowed. If the peer drops the operation later,
/// it waits for this object's destruction before it reuses its tensors. Threads: any.
class ExposureAccess {
 public:
  explicit ExposureAccess(ExposureNote& note) : writers_(note.writers) {
    is_allowed_ = (writers_.fetch_add(1, std::memory_order_acquire) & ExposureNote::kRevoked) == 0;
  }
  ~ExposureAccess() { writers_.fetch_sub(1, std::memory_order_release); }
  ExposureAccess(const ExposureAccess&) = delete;
  ExposureAccess& operator=(const ExposureAccess&) = delete;

  /// If false, this rank must not write.
  bool is_allowed() const { return is_allowed_; }

 private:
  std::atomic<std::uint32_t>& writers_;
  bool is_allowed_;
};

}  // namespace kolo
