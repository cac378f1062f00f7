#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/schedule/bucket_layout.h"
#include "fusion/gradient.h"

namespace kolo {

/// The position of one gradient in a bucket, in elements of the bucket.
struct PlannedSegment {
  std::size_t gradient = 0;
  std::size_t offset = 0;
  std::size_t count = 0;
};

struct PlannedBucket {
  BucketLayout layout;
  std::vector<PlannedSegment> segments;  ///< Sorted by offset.
};

/// The buckets of a set, and which gradient is in which bucket.
struct Plan {
  std::vector<PlannedBucket> buckets;  ///< In the expected order of readiness.
  std::vector<std::size_t> bucket_of;  ///< By gradient; unspecified if it is in no bucket.
};

struct PlannerOptions {
  GradientOptions gradients = {};
  std::size_t fusion_bytes = 0;          ///< Largest bucket in bytes; 0: one gradient per bucket.
  std::size_t device_fusion_bytes = 0;   ///< As `fusion_bytes`, for gradients in device memory.
  std::size_t device_padding_bytes = 1;  ///< The size of a device bucket is a multiple of this.
  /// The expected order in which gradients become ready. If empty: last registered first, the order
  /// of a backward pass.
  std::vector<std::size_t> order = {};
};

/// Fills buckets greedily in the order of readiness, so that buckets are ready early.
///
/// Gradients share a bucket only if they have the same dtype in it (the wire dtype for floats, if
/// one is set) and the same memory kind, and if either all or none of them are stored in the
/// bucket. A gradient that must be cast makes the bucket kStaged. On the host it shares a 16-bit
/// bucket only with other cast gradients, each followed by its report (see `report_count`). A
/// gradient that cannot join the current bucket does not close it: if kinds alternate, one bucket
/// of each kind is filled at a time. Each gradient starts at a multiple of kWireAlignment bytes. A
/// gradient larger than `fusion_bytes` has its own bucket. Gradients with a `compression` are left
/// out.
///
/// Threads: pure; any. Equal specs and options give equal plans on every rank.
/// Errors:  UsageError if the order is not a permutation.
Plan plan_buckets(std::span<const GradientSpec> gradients, const PlannerOptions& options);

/// The offsets of gradients in one range of arena memory that holds all in-place host buckets, one
/// after the other. Units: bytes.
struct ArenaPlaces {
  std::vector<std::optional<std::size_t>> offset_of;  ///< By gradient; empty if not in the arena.
  std::size_t bytes = 0;                              ///< Total size.
};

/// Assigns offsets to gradients dtype by dtype, in `order`, each at a multiple of kWireAlignment
/// within and across buckets. Offsets do not depend on `fusion_bytes`, so buckets can be planned
/// again without moving gradients. A bucket of such a plan starts at the offset of its first
/// gradient.
///
/// Threads: pure; any. Errors: as `plan_buckets`.
ArenaPlaces place_in_arena(std::span<const GradientSpec> gradients, const PlannerOptions& options);

/// Returns the dtype of a gradient in its bucket.
DType bucket_dtype(const GradientSpec& gradient, const GradientOptions& options);

/// Counts, for each bucket of a plan, the gradients of this rank that are not ready. Threads: one.
class Readiness {
 public:
  explicit Readiness(const Plan& plan);

  /// Marks `gradient` as complete in the current iteration. If all gradients of its bucket are
  /// complete, returns the bucket and starts counting for the bucket's next iteration.
  std::optional<std::size_t> mark(std::size_t gradient);

  std::size_t bucket_of(std::size_t gradient) const { return bucket_of_[gradient]; }

 private:
  std::vector<std::size_t> bucket_of_;
  std::vector<std::size_t> size_, missing_;  // numbers of gradients, by bucket
};

}  // namespace kolo
