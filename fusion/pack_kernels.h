#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "comm/base/buffer_view.h"
#include "comm/base/check.h"
#include "comm/base/dtype.h"
#include "comm/kernels/reduce_kernels.h"
#include "comm/schedule/packer.h"

namespace kolo {

/// A tensor and its position in a bucket: its `count` elements of `dtype` at `data` are elements
/// [offset, offset + count) of the bucket, which has its own dtype.
struct Segment {
  /// Address of the result; null for a tensor that has only a contribution, at `input`.
  void* data = nullptr;
  /// Address of the contribution if it is not at `data`; otherwise null. Same count and dtype.
  const void* input = nullptr;
  DType dtype = DType::kFloat32;
  std::size_t count = 0;
  std::size_t offset = 0;

  /// Whether contribution and result are the same memory, so that nothing is unpacked.
  bool stays() const { return input != nullptr && input == data; }
  /// Returns the address of the contribution.
  const void* source() const { return input != nullptr ? input : data; }

  /// Return the address of bucket element `position`: in the result, and in the contribution.
  std::byte* at(std::size_t position) const {
    return static_cast<std::byte*>(data) + (position - offset) * size_of(dtype);
  }
  const std::byte* source_at(std::size_t position) const {
    return static_cast<const std::byte*>(source()) + (position - offset) * size_of(dtype);
  }
};

/// Writes elements [begin, begin + range.count) of a bucket to `range`, each cast from its tensor
/// and multiplied by `scale` in one pass. Elements outside all segments (padding) become zero.
///
/// Shape:   `segments` are sorted by offset and do not overlap; a segment may start before or end
///          after the range. `range.data` receives bucket element `begin`; `range.dtype` is the
///          bucket's. The range does not overlap the tensors.
/// Units:   count, offset and begin are elements of the bucket.
/// Rounding: as `convert` in comm/kernels/reduce_kernels.h; equal dtypes with scale 1.0 copy bits.
/// Threads: pure; disjoint ranges of one bucket may be packed concurrently.
/// Errors:  UsageError if two segments that overlap the range are out of order or overlap each
///          other.
/// Cost:    one pass over the range; O(log segments) to find the first segment.
void pack(std::span<const Segment> segments, const BufferView& range, std::size_t begin,
          double scale, Stores stores = Stores::kCached);

/// The inverse of `pack`: writes the tensor elements in [begin, begin + range.count), cast from
/// `range` and multiplied by `scale`. Does not change other elements, nor segments for which
/// `stays` is true. Otherwise as `pack`.
void unpack(std::span<const Segment> segments, const BufferView& range, std::size_t begin,
            double scale, Stores stores = Stores::kCached);

/// Calls `overlap(segment, first, last)`, in order, for every segment with bucket elements [first,
/// last) in [begin, end). Errors: UsageError if two segments are out of order or overlap.
template <typename Overlap>
void for_each_overlap(std::span<const Segment> segments, std::size_t begin, std::size_t end,
                      Overlap overlap) {
  const auto ends_before = [](const Segment& segment, std::size_t position) {
    return segment.offset + segment.count <= position;
  };
  auto segment = std::lower_bound(segments.begin(), segments.end(), begin, ends_before);
  std::size_t cursor = begin;
  for (; segment != segments.end() && segment->offset < end; ++segment) {
    const std::size_t first = std::max(segment->offset, begin);
    const std::size_t last = std::min(segment->offset + segment->count, end);
    check(first >= cursor, "segments of a bucket must be sorted and must not overlap");
    if (first < last) overlap(*segment, first, last);
    cursor = last;
  }
}

/// A packer whose tensors may be at other addresses in each iteration. Threads: the executor's.
class Rebindable {
 public:
  virtual ~Rebindable() = default;
  /// Sets the address of tensor `index` to other memory of the same size. `input` is the address of
  /// the contribution if it is in separate memory; otherwise null.
  virtual void rebind(std::size_t index, void* data, const void* input) = 0;
};

/// Packs and unpacks the tensors of one host bucket that is not in place, with casts to and from
/// the bucket's dtype. Reductions scale the results. Threads: the executor's.
class SegmentPacker final : public Packer, public Rebindable {
 public:
  /// `segments` meet the conditions of `pack`.
  SegmentPacker(DType bucket_dtype, std::vector<Segment> segments)
      : dtype_(bucket_dtype), segments_(std::move(segments)) {}

  void rebind(std::size_t index, void* data, const void* input) override;
  /// Sets the factor of contributions when they are packed; see `Binding::packs_contributions`.
  void set_scale(double scale) { scale_ = scale; }

  void pack(std::size_t offset, std::size_t count, void* bucket, Stores stores) override;
  void unpack(std::size_t offset, std::size_t count, const void* bucket, Stores stores) override;
  Piece piece(std::size_t offset, std::size_t count) override;

 private:
  DType dtype_;
  double scale_ = 1;
  std::vector<Segment> segments_;
};

}  // namespace kolo
