#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/collective/registry.h"
#include "fusion/bucket_planner.h"
#include "runtime/api/options.h"
#include "topology/process_grid.h"

namespace kolo {

/// Whether the bits of sums in host memory may depend on which gradients share a bucket: where they
/// are not made in the order of ranks, or where the size of a bucket chooses among algorithms that
/// make them in different orders. Threads: pure; any.
bool bits_depend_on_buckets(const AlgorithmRequest& asked, const ProcessGrid& grid);

/// Whether a set with these gradients, in so many buckets, is to be planned by the order in which
/// its gradients become ready: what `bucket_order` says. Gradients in device memory keep the plan
/// that they begin with. Threads: pure; any.
bool measures_order(const Options& options, const AlgorithmRequest& asked, const ProcessGrid& grid,
                    std::span<const GradientSpec> gradients, std::size_t buckets);

/// How soon a forward pass needs what is in a bucket; the smaller, the sooner. Gradients are needed
/// in the order of their registration, and what follows the first `gradients` of a set, the
/// weights, with the first. Never 0. Threads: pure; any.
std::uint32_t urgency_of(const PlannedBucket& bucket, std::size_t gradients);

/// A fingerprint of which gradients share a bucket, and where in it each lies; never 0.
std::uint64_t fingerprint(const Plan& plan);

}  // namespace kolo
