#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/base/mutex.h"
#include "comm/schedule/bucket_layout.h"
#include "comm/schedule/packer.h"
#include "fusion/pack_kernels.h"
#include "fusion/wire_scale.h"

namespace kolo {

/// Returns the number of report elements, which follow each tensor of the bucket: two in host
/// buckets of sums or averages whose tensors are cast to float16, otherwise none. In them, a
/// rank reports that values of the tensor in the previous step were too large for the wire dtype,
/// or all too small; see `WireReport`.
std::size_t report_count(const BucketLayout& layout);

/// Packs and unpacks the tensors of one host bucket that are cast to a 16-bit wire dtype. For
/// float16 it also multiplies by a power of two per tensor (see WireScale) and divides by it.
/// Finite values stay finite; infinities and NaNs stay as they are.
///
/// The exponents are equal on all ranks and do not depend on which tensors share the bucket. A
/// tensor gets its next exponent when its whole result is unpacked, which is after all of it was
/// packed on this rank.
///
/// Threads: the executor's and its helpers, each with different elements. Allocates only for a
/// warning.
class WirePacker final : public Packer, public Rebindable {
 public:
  /// `segments` meet the conditions of `pack`, with room for the report after each; segment i is
  /// tensor tensors[i] of `state`. `name` is the bucket's name, for a warning. Before: layout.dtype
  /// is float16 or bfloat16, the placement is kStaged, and no other packer uses these tensors at
  /// the same time.
  WirePacker(const BucketLayout& layout, std::vector<Segment> segments,
             std::vector<std::size_t> tensors, std::shared_ptr<WireState> state, std::string name);

  void rebind(std::size_t index, void* data, const void* input) override;

  /// Ignores `stores` and writes through the cache.
  void pack(std::size_t offset, std::size_t count, void* bucket, Stores stores) override;
  void unpack(std::size_t offset, std::size_t count, const void* bucket, Stores stores) override;
  /// Always throws UsageError, because no tensor has the bucket's dtype.
  Piece piece(std::size_t offset, std::size_t count) override;

 private:
  void pack_tensor(const Segment& place, std::size_t first, std::size_t last, std::uint16_t* to);
  void unpack_tensor(const Segment& place, std::size_t first, std::size_t last,
                     const std::uint16_t* from, Stores stores);
  void warn_once(std::size_t too_large) const;
  void finish(WireTensor& tensor) KOLO_REQUIRES(mutex_);
  WireTensor& tensor_of(const Segment& place) {
    return state_->tensor(tensors_[static_cast<std::size_t>(&place - places_.data())]);
  }
  /// Returns the end of the tensor in the bucket, without its report.
  std::size_t end_of(const Segment& place) const {
    return place.offset + place.count - report_count_;
  }

  const DType wire_;
  const std::size_t report_count_;  // number of report elements after each tensor: 0 or 2
  const std::string name_;
  std::vector<Segment> places_;  // each includes its report
  const std::vector<std::size_t> tensors_;
  const std::shared_ptr<WireState> state_;
  Mutex mutex_;  // guards the fields of WireTensor that several threads write
};

}  // namespace kolo
