#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "comm/schedule/bucket_layout.h"
#include "comm/schedule/step.h"

namespace kolo {

/// Slot size, in elements, for an exposed buffer of `count` elements.
inline std::size_t exposure_slot_count(std::size_t count, DType dtype) {
  return kWireAlignment / size_of(dtype) + count;
}

/// A range of Region::kExposedInput or Region::kExposedResult stands for tensors of a rank,
/// together with a slot whose note says where peers find the elements. Contributions are exposed
/// for reading; results are exposed for writing. Peers access the tensors directly if that is
/// efficient: memory mapped in the arena or, for plain copies and in huge pages, private memory
/// through system calls. Otherwise the elements go through the slot: the rank that exposes a
/// contribution copies it there, with `Binding::exposure_stores`; the rank that exposes a result
/// copies it from there when it unpacks the range. Which way is taken is known only at run time, so
/// a step that uses the range depends on both tensors and slot.
///
///   slot   note | elements
///          ^ kWireAlignment bytes
struct ExposedBuffer {
  Range tensors;  ///< A contribution: in kInput if the bucket is out of place, otherwise in kUser.
                  ///< A result: in kUser.
  Range slot;     ///< In kStaging: the note, then the elements.

  /// Whether a range is exposed.
  static bool is_exposed(const Range& range) {
    return range.region == Region::kExposedInput || range.region == Region::kExposedResult;
  }
  /// The exposed buffer of a range of a bucket with this layout.
  static ExposedBuffer of(const Range& range, const BucketLayout& layout) {
    const bool is_input = range.region == Region::kExposedInput && layout.out_of_place;
    const Region region = is_input ? Region::kInput : Region::kUser;
    return {.tensors = {range.rank, region, range.offset, range.count},
            .slot = {range.rank, Region::kStaging, range.slot,
                     exposure_slot_count(range.count, layout.dtype)}};
  }
  /// The elements within the slot.
  static Range elements(const Range& range, DType dtype) {
    return {range.rank, Region::kStaging, range.slot + exposure_slot_count(0, dtype), range.count};
  }
};

/// Location of exposed elements.
struct ExposureNote {
  /// Virtual location of element 0 of the bucket, extrapolated from the elements. In the rank's
  /// arena: bytes from the beginning of its memory (see `Transport::memory`). In private memory:
  /// the address in its process.
  std::int64_t origin = 0;
  std::int32_t is_private = 0;
  /// Number of peers that write to the exposed memory, plus `kRevoked` once the exposure is
  /// revoked.
  std::atomic<std::uint32_t> writers = 0;

  static constexpr std::uint32_t kRevoked = 1U << 31;
};
static_assert(sizeof(ExposureNote) <= kWireAlignment);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// Guards writes to memory that a peer has exposed, during its own lifetime. The peer may give the
/// operation up before this rank begins it, but waits for such writes before it takes its tensors
/// back. Threads: any.
class ExposureAccess {
 public:
  explicit ExposureAccess(ExposureNote& note) : writers_(note.writers) {
    is_allowed_ = (writers_.fetch_add(1, std::memory_order_acquire) & ExposureNote::kRevoked) == 0;
  }
  ~ExposureAccess() { writers_.fetch_sub(1, std::memory_order_release); }
  ExposureAccess(const ExposureAccess&) = delete;
  ExposureAccess& operator=(const ExposureAccess&) = delete;

  /// If false, nothing may be written.
  bool is_allowed() const { return is_allowed_; }

 private:
  std::atomic<std::uint32_t>& writers_;
  bool is_allowed_;
};

}  // namespace kolo
