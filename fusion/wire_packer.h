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

/// Number of elements that the wire adds behind each tensor of the bucket: two in host buckets of
/// sums whose tensors are cast to float16, otherwise none. With them a rank reports that in the
/// previous step values of this tensor were too large for the wire, or all too small; see
/// `WireReport`.
std::size_t lanes_of(const BucketLayout& layout);

/// The executor's view of the tensors of one host bucket that are cast to a 16-bit wire. It packs
/// with the cast to the wire and unpacks with the cast back; for float16, multiplied by a power of
/// two per tensor (see WireScale). Finite values stay finite, others stay as they are.
///
/// The exponents are equal on all ranks and do not depend on which tensors share the bucket. A
/// tensor takes its next exponent when its whole result is unpacked, so after all of it was packed
/// on this rank.
///
/// Threads: the executor's and its helpers, each with different elements. Allocates nothing except
///          for one warning.
class WirePacker final : public Packer, public Rebindable {
 public:
  /// `segments` as for `pack`, with room for the lanes behind each; segment i is tensor tensors[i]
  /// of `state`. `name` is the bucket's, for a warning. Before: layout.dtype is float16 or
  /// bfloat16, with Placement::kStaged; no other packer works on these tensors at the same time.
  WirePacker(const BucketLayout& layout, std::vector<Segment> segments,
             std::vector<std::size_t> tensors, std::shared_ptr<WireState> state, std::string name);

  void rebind(std::size_t index, void* data, const void* input) override;

  /// Always writes through the cache.
  void pack(std::size_t offset, std::size_t count, void* bucket, Stores stores) override;
  void unpack(std::size_t offset, std::size_t count, const void* bucket, Stores stores) override;
  /// Errors: always UsageError, because no tensor has the bucket's dtype.
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
  /// The end of the tensor in the bucket.
  std::size_t end_of(const Segment& place) const { return place.offset + place.count - lanes_; }

  const DType wire_;
  const std::size_t lanes_;  // behind each tensor: 0 or 2
  const std::string name_;
  std::vector<Segment> places_;  // including their lanes
  const std::vector<std::size_t> tensors_;
  const std::shared_ptr<WireState> state_;
  Mutex mutex_;  // guards the notes in a WireTensor, which several threads write
};

}  // namespace kolo
