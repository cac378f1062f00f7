#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "comm/schedule/bucket_layout.h"

namespace kolo {

/// A choice that was faster than that of the cost model when both were measured (`kolo-bench
/// tune`), for host memory and sizes from half of `bytes` to twice: either the algorithm of a
/// collective, or the size of buckets for gradients of `bytes` bytes in all.
struct TunedChoice {
  std::string collective = {};  ///< As `to_string(CollectiveKind)`; empty: of gradients.
  bool in_place = false;        ///< True for tensors in a bucket, false for the caller's.
  std::size_t bytes = 0;        ///< Of the bucket, as in `BucketLayout`, or of all gradients.
  std::string algorithm = {};
  std::size_t chunk_bytes = 0;   ///< 0: `Algorithm::chunk_bytes` decides.
  std::size_t fusion_bytes = 0;  ///< Of gradients.

  bool is_for(Placement placement) const {
    return placement == (in_place ? Placement::kInPlace : Placement::kUser);
  }
  bool covers(std::size_t size) const { return bytes / 2 <= size && size < 2 * bytes; }
};

using Tuning = std::vector<TunedChoice>;

}  // namespace kolo
