#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "comm/device/device_kernels.h"
#include "fusion/pack_kernels.h"

namespace kolo {

/// The tensors of one bucket, divided into chunks for batched copies; made once for all iterations.
///
/// A run holds the chunks of the tensors of one dtype, sorted by offset. Gaps between tensors are
/// chunks without a tensor, in the first run. No chunk crosses a cut, so the part of the bucket
/// between any two cuts is one span of chunks in each run and needs one launch per dtype. With cuts
/// at 0, 4 and 8, tensor a of one dtype and b and c of another:
///
///     bucket    0 1 2 3 4 5 6 7 8
///     tensor    a a b b b b . c
///     cut       |       |       |
///     run 0     a a                .      chunks [0, 2) and the gap [6, 7)
///     run 1         b b b b   c           chunks [2, 4), [4, 6) and [7, 8)
///
/// Threads: any for const members; one for `rebind`.
class ChunkTable {
 public:
  struct Run {
    DType tensor_dtype = DType::kFloat32;
    std::vector<CopyChunk> chunks = {};
  };
  /// The chunks [begin, end) of a run.
  struct Part {
    std::size_t begin = 0, end = 0;
  };

  /// Shape:   `segments` are sorted by offset, do not overlap and are in [0, count); `cuts` are the
  ///          bucket elements at which ranges start or end, in any order.
  /// Units:   elements of the bucket.
  /// Errors:  UsageError if segments or cuts do not meet this.
  ChunkTable(std::span<const Segment> segments, DType bucket_dtype, std::size_t count,
             std::span<const std::size_t> cuts);

  std::span<const Run> runs() const { return runs_; }

  /// Returns the chunks of a run within elements [offset, offset + count) of the bucket. Errors:
  /// UsageError if an end of the range is neither a cut nor an end of the bucket.
  Part part(std::size_t run, std::size_t offset, std::size_t count) const;

  /// Sets the address of segment `index` to `data`. Returns its run and its chunks in that run.
  std::pair<std::size_t, Part> rebind(std::size_t index, void* data);

 private:
  void add_gap(std::size_t begin, std::size_t end);
  void add_pieces(Run& run, void* data, std::size_t begin, std::size_t end);

  struct Home {
    std::size_t run = 0;
    std::size_t offset = 0;  // in the bucket
    Part chunks = {};
  };

  DType bucket_dtype_;
  std::vector<std::size_t> cuts_;  // sorted, with 0 and the end of the bucket
  std::vector<Run> runs_;
  std::vector<Home> homes_;  // by segment
};

}  // namespace kolo
