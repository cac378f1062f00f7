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

/// Gradients of a set with equal specs that share payloads and owners.
struct CompressedTensors {
  std::vector<std::size_t> gradients;  ///< In the expected order of readiness.
  CompressionSpec spec;
  std::size_t count = 0;  ///< Elements.

  /// "'fc1.weight' and 3 more".
  std::string name(std::span<const GradientSpec> all) const;
};

/// Groups the gradients whose `compression` is not empty, by spec and size. The groups depend on
/// the job only, not on `fusion_bytes`. Pure; equal on all ranks.
std::vector<CompressedTensors> plan_compressed(std::span<const GradientSpec> gradients);

/// Options for the tensors's schedules and codec; a route that was left open is kPairwise.
SparseOptions sparse_options(const CompressedTensors& tensors,
                             std::span<const GradientSpec> gradients);

/// The tensors as a bucket of a set, for `Readiness` and for statistics.
PlannedBucket planned_bucket(const CompressedTensors& tensors,
                             std::span<const GradientSpec> gradients, ReduceOp op);

/// If `auto` might compress gradients, they are sent dense and measured in this many iterations;
/// the decision takes effect in the next one.
inline constexpr std::size_t kMeasuredIterations = 20;

/// A tensors that is sent dense until steps are measured.
struct OpenChoice {
  CompressedTensors tensors;
  std::size_t decision = 0;  ///< Index in all decisions.
};

struct CompressionChoices {
  /// One for each tensors whose spec left a choice.
  std::vector<CompressionDecision> decisions = {};
  std::vector<OpenChoice> open = {};  ///< In order of readiness.
};

/// Decides what specs leave open, `auto` and routes, by link costs, and writes the decision to the
/// gradients: dense, or a codec with a named route. Each compressed bucket is decided separately.
/// Groups of `auto` whose exchange compression would make 1.2 times as fast stay open: they begin
/// dense, and `settle_compression` decides them.
///
/// On one node `auto` is dense whatever was measured: owners sum in mapped memory, and no selection
/// is faster than reading it. Routes there depend on the cost of that memory. Between nodes the
/// model assumes that each rank exchanges its part of the tensors over its share of the node's
/// link.
///
/// Threads: pure; any. Equal arguments give equal choices: costs are rank 0's.
CompressionChoices choose_compression(std::vector<GradientSpec>& gradients, const ProcessGrid& grid,
                                      const LinkCosts& costs);

/// Decides all open groups by the measured times of dense steps (`choose_step`), and writes the
/// results to the gradients and to the decisions. Returns whether any gradient is compressed. The
/// spec of a tensors that becomes sparse says that `kMeasuredIterations` dense ones are done.
/// Threads: pure; any.
bool settle_compression(std::vector<GradientSpec>& gradients, CompressionChoices& choices,
                        const DenseSteps& measured, const ProcessGrid& grid,
                        const LinkCosts& costs);

/// The open choices, one per line; equal on all ranks.
std::string describe(const CompressionChoices& choices, std::span<const GradientSpec> gradients);

/// A rank's measurement as the value of a vote that takes the minimum: the value of the rank that
/// waited least, which was the last to finish computing. Unit: 0.1 us, at most 429 s.
std::uint64_t to_word(const DenseSteps& steps);
DenseSteps dense_steps(std::uint64_t word);

/// Predicted time of a sparse step of a tensors whose spec names its route. Pure.
double predict_sparse_us(const CompressedTensors& tensors, const ProcessGrid& grid,
                         const LinkCosts& costs);

}  // namespace kolo
