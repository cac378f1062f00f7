#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/schedule/bucket_layout.h"
#include "fusion/gradient.h"

namespace kolo {

/// One gradient's place in a bucket; units are elements of the bucket.
struct PlannedSegment {
  std::size_t gradient = 0;
  std::size_t offset = 0;
  std::size_t count = 0;
};

struct PlannedBucket {
  BucketLayout layout;
  std::vector<PlannedSegment> segments;  ///< By offset.
};

/// The distribution of gradients over buckets.
struct Plan {
  std::vector<PlannedBucket> buckets;  ///< In the expected order of readiness.
  std::vector<std::size_t> bucket_of;  ///< By gradient; unspecified for gradients left out.
};

struct PlannerOptions {
  GradientOptions gradients = {};
  std::size_t fusion_bytes = 0;  ///< Largest bucket, in bytes of its dtype; 0: one gradient each.
  std::size_t device_fusion_bytes = 0;   ///< As `fusion_bytes`, for device memory.
  std::size_t device_padding_bytes = 1;  ///< Sizes of device buckets are multiples of this.
  /// Expected order in which gradients become ready; empty: last registered first, the order of a
  /// backward pass.
  std::vector<std::size_t> order = {};
};

/// Fills buckets greedily in order of readiness, so that a bucket closes as early as possible.
///
/// Gradients share a bucket only if they have the same dtype in it (the wire dtype for floats, if
/// one is set) and the same memory, and live either all or none in the bucket. A gradient that must
/// be cast makes the bucket kStaged; on the host it shares a 16-bit bucket only with other cast
/// gradients, each followed by its `lanes_of`. A gradient that may not share the current bucket
/// does not close it: if kinds alternate, one bucket of each kind is filled at a time. Each
/// gradient starts at a multiple of kWireAlignment bytes. A gradient larger than `fusion_bytes` has
/// its own bucket. Gradients with a `compression` are left out; compressed buckets take them.
///
/// Threads: pure; any. Equal specs and options give equal plans on every rank.
/// Errors:  UsageError if the order is not a permutation.
Plan plan_buckets(std::span<const GradientSpec> gradients, const PlannerOptions& options);

/// Offsets of gradients in one piece of arena memory that holds all in-place host buckets, one
/// after the other. Units: bytes.
struct ArenaPlaces {
  std::vector<std::optional<std::size_t>> offset_of;  ///< By gradient; empty if it lives elsewhere.
  std::size_t bytes = 0;                              ///< Total size.
};

/// Places gradients dtype by dtype in `order`, each at a multiple of kWireAlignment within and
/// across buckets. Offsets therefore do not depend on `fusion_bytes`: buckets can be planned again
/// without moving gradients. A bucket of such a plan begins at the offset of its first gradient.
///
/// Threads: pure; any. Errors: as `plan_buckets`.
ArenaPlaces place_in_arena(std::span<const GradientSpec> gradients, const PlannerOptions& options);

/// The dtype of a gradient in its bucket.
DType bucket_dtype(const GradientSpec& gradient, const GradientOptions& options);

/// Counts the gradients of this rank that each bucket of a plan still waits for. Threads: one.
class Readiness {
 public:
  explicit Readiness(const Plan& plan);

  /// Marks `gradient` as complete in the current iteration. If it was the last one missing in its
  /// bucket, returns the bucket, which then starts to count for the next iteration.
  std::optional<std::size_t> mark(std::size_t gradient);

  std::size_t bucket_of(std::size_t gradient) const { return bucket_of_[gradient]; }

 private:
  std::vector<std::size_t> bucket_of_;
  std::vector<std::size_t> size_, missing_;  // gradients, by bucket
};

}  // namespace kolo
