#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "comm/schedule/packer.h"
#include "fusion/pack_kernels.h"
#include "fusion/rebindable.h"

namespace kolo {

/// The executor's view of the tensors of one host bucket that is not in place: packs with the cast
/// to the bucket's dtype, unpacks with the cast back. Results are scaled in the reduction.
/// Threads: the executor's.
class SegmentPacker final : public Packer, public Rebindable {
 public:
  /// `segments` as for `pack`.
  SegmentPacker(DType bucket_dtype, std::vector<Segment> segments)
      : dtype_(bucket_dtype), segments_(std::move(segments)) {}

  void rebind(std::size_t index, void* data, const void* input) override;
  /// What is packed is multiplied by `scale`. `Binding::packs_contributions` says so to the run.
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
