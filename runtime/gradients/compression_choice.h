#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "compression/chooser.h"
#include "compression/compression_spec.h"
#include "compression/sparse_all_reduce.h"
#include "fusion/bucket_planner.h"
#include "fusion/gradient.h"
#include "runtime/options/plan_summary.h"
#include "topology/link_costs.h"
#include "topology/process_grid.h"

namespace kolo {

/// Gradients of one set with one spec that share payloads and owners.
struct PlannedGroup {
  std::vector<std::size_t> gradients;  ///< In the order in which they are expected to be ready.
  CompressionSpec spec;
  std::size_t count = 0;  ///< Elements.

  /// "'fc1.weight' and 3 more".
  std::string name(std::span<const GradientSpec> all) const;
};

/// Groups the gradients whose `compression` is not empty, by spec and size: a property of the job,
/// whatever `fusion_bytes` is. Pure; equal on all ranks.
std::vector<PlannedGroup> plan_groups(std::span<const GradientSpec> gradients);

/// The group as its schedules and its codec know it; a route that was left open is kPairwise.
SparseOptions sparse_options(const PlannedGroup& group, std::span<const GradientSpec> gradients);

/// The group as one of the buckets of a set: for `Readiness` and for statistics.
PlannedBucket planned_bucket(const PlannedGroup& group, std::span<const GradientSpec> gradients,
                             ReduceOp op);

/// So many iterations travel dense where `auto` might compress, and are measured; what they say is
/// in force from the next one on.
inline constexpr std::size_t kMeasuredIterations = 20;

/// A group that travels dense until steps are measured.
struct OpenChoice {
  PlannedGroup group;
  std::size_t decision = 0;  ///< Its place among all decisions.
};

struct CompressionChoices {
  std::vector<CompressionDecision> decisions = {};  ///< One for each group that left a choice.
  std::vector<OpenChoice> open = {};                ///< In the order of readiness.
};

/// Decides what specs leave open, `auto` and routes, by what links cost, and writes it
/// to the gradients: dense, or a codec by a named route. Each compression group is decided by
/// itself, but for those of `auto` whose exchange compression would make 1.2 times as fast: these
/// become dense, and `settle_compression` says at last what they are.
///
/// On one node `auto` is dense whatever was measured: owners sum in mapped memory, and no selection
/// is faster than what it reads. Routes go by that memory there. Between nodes each
/// rank is taken to exchange its part of the tensors over its share of the node's link.
///
/// Threads: pure; any. Equal arguments give equal choices: costs are rank 0's.
CompressionChoices choose_compression(std::vector<GradientSpec>& gradients, const ProcessGrid& grid,
                                      const LinkCosts& costs);

/// Decides all that is open, by what dense steps took (`choose_step`), and writes it to the
/// gradients and to the decisions; nothing is open then. Returns whether anything is compressed.
/// A group that becomes sparse has `kMeasuredIterations` dense ones behind it, which its spec says.
/// Threads: pure; any.
bool settle_compression(std::vector<GradientSpec>& gradients, CompressionChoices& choices,
                        const DenseSteps& measured, const ProcessGrid& grid,
                        const LinkCosts& costs);

/// The open choices, one per line; equal on all ranks.
std::string describe(const CompressionChoices& choices, std::span<const GradientSpec> gradients);

/// The measurement of a rank as the value of a vote in which the least one counts: that of the rank
/// that waited least, the last to finish computing. Units: 0.1 us; longer than 429 s reads as that.
std::uint64_t to_word(const DenseSteps& steps);
DenseSteps dense_steps(std::uint64_t word);

/// Predicted time of a sparse step of a group whose spec names its route. Pure.
double predict_sparse_us(const PlannedGroup& group, const ProcessGrid& grid,
                         const LinkCosts& costs);

}  // namespace kolo
