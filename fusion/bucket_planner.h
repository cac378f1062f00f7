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

/// Which gradients travel together.
struct Plan {
  std::vector<PlannedBucket> buckets;  ///< In the order in which they are expected to be ready.
  std::vector<std::size_t> bucket_of;  ///< By gradient; of those left out it means nothing.
};

struct PlannerOptions {
  GradientOptions gradients = {};
  std::size_t fusion_bytes = 0;  ///< Largest bucket, in bytes of its dtype; 0: one gradient each.
  std::size_t device_fusion_bytes = 0;   ///< The same in device memory.
  std::size_t device_padding_bytes = 1;  ///< A device bucket's size is a multiple of it.
  /// Gradients in the order in which they are expected to be ready; empty: last registered first,
  /// as backward computes them.
  std::vector<std::size_t> order = {};
};

/// Fills buckets greedily in order of readiness, so that a bucket closes as early as possible.
/// Gradients share a bucket only if they have its dtype (the wire's for floats, if one is set) and
/// memory, and all live in it or none; one that must be cast makes the bucket kStaged, but on the
/// host shares a 16-bit one only with such, each with its `lanes_of` behind it. What may not share
/// a bucket does not close it either: where kinds alternate, one of each kind is filled at a time.
/// Each starts at a multiple of kWireAlignment bytes; one that is larger than `fusion_bytes` has a
/// bucket of its own. Gradients with a `compression` are left out: they travel in groups of another
/// kind.
///
/// Threads: pure; any. Equal specs and options give equal plans on every rank.
/// Errors:  UsageError if `order` is not a permutation.
Plan plan_buckets(std::span<const GradientSpec> gradients, const PlannerOptions& options);

/// Places of gradients in one piece of arena memory that holds all buckets in place on the host,
/// one behind the other. Units: bytes.
struct ArenaPlaces {
  std::vector<std::optional<std::size_t>> offset_of;  ///< By gradient; empty if it lives elsewhere.
  std::size_t bytes = 0;                              ///< Of it all.
};

/// Dtype by dtype in order of readiness, every gradient at a multiple of kWireAlignment, in a
/// bucket and across buckets, so places do not depend on `fusion_bytes`: buckets can be planned
/// anew and no gradient moves. A bucket of such a plan begins at the place of its first gradient.
///
/// Threads: pure; any. Errors: as `plan_buckets`.
ArenaPlaces place_in_arena(std::span<const GradientSpec> gradients, const PlannerOptions& options);

/// The dtype that a gradient has in its bucket.
DType bucket_dtype(const GradientSpec& gradient, const GradientOptions& options);

}  // namespace kolo
