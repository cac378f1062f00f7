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
  std::vector<std::size_t> gradients;   ///< In the expected order of readiness.
  std::vector<FeedbackTensor> tensors;  ///< Names and sizes of `gradients`.
  CompressionSpec spec;
  MemoryKind memory = MemoryKind::kHost;
  std::size_t count = 0;  ///< Elements.

  /// Returns a name for display: "'fc1.weight' and 3 more".
  std::string name(std::span<const GradientSpec> all) const;
};

/// Divides the gradients whose `compression` is not empty into compressed buckets, by memory, spec
/// and size. `fusion_bytes` has no influence. Pure; equal on all ranks.
std::vector<CompressedTensors> plan_compressed(std::span<const GradientSpec> gradients);

/// Returns options for schedules and codec of a compressed bucket; an open route is kPairwise.
SparseOptions sparse_options(const CompressedTensors& tensors);

/// Returns a compressed bucket as a planned bucket, for `Readiness` and for statistics.
PlannedBucket planned_bucket(const CompressedTensors& tensors, ReduceOp op);

/// Number of iterations in which gradients that `auto` may compress are sent dense and timed. The
/// decision takes effect in the next iteration.
inline constexpr std::size_t kMeasuredIterations = 20;

/// A compressed bucket that is sent dense until steps are measured.
struct OpenChoice {
  CompressedTensors tensors;
  std::size_t decision = 0;  ///< Index in all decisions.
};

struct CompressionChoices {
  /// One for each compressed bucket whose spec left a choice or cannot be followed.
  std::vector<CompressionDecision> decisions = {};
  std::vector<OpenChoice> open = {};  ///< In order of readiness.
};

/// Makes the choices that specs leave open, `auto` and routes, by link costs, and writes each
/// decision to the gradients: dense, or a codec with a named route. Each compressed bucket is
/// decided separately. If `auto` could make its exchange 1.2 times as fast by compression, the
/// decision stays open: the bucket begins dense, and `settle_compression` decides.
///
/// On one node `auto` is always dense: owners sum in mapped memory, and selecting elements is no
/// faster than reading them. Routes there depend on the cost of mapped memory. Between nodes the
/// model assumes that each rank exchanges its part of the bucket over its share of the node's link.
///
/// Buckets in device memory for which there is a `device_obstacle` are dense; `native_in_nodes` is
/// for those.
///
/// Threads: pure; any. Equal arguments give equal choices: costs are rank 0's.
CompressionChoices choose_compression(std::vector<GradientSpec>& gradients, const ProcessGrid& grid,
                                      const LinkCosts& costs, bool native_in_nodes = true);

/// Makes all open decisions by the measured times of dense steps (`choose_step`), and writes the
/// results to the gradients and to the decisions. Returns whether any gradient is compressed. The
/// `kMeasuredIterations` dense iterations count as warm-up of buckets that become sparse.
/// Threads: pure; any.
bool settle_compression(std::vector<GradientSpec>& gradients, CompressionChoices& choices,
                        const DenseSteps& measured, const ProcessGrid& grid,
                        const LinkCosts& costs);

/// Formats the open choices, one per line; equal on all ranks.
std::string describe(const CompressionChoices& choices, std::span<const GradientSpec> gradients);

/// Encodes a rank's measurement for a vote whose result is the minimum: the measurement of the rank
/// that waited least, because it finished computing last. Each time has steps of 0.1 us and is at
/// most 429 s.
std::uint64_t to_word(const DenseSteps& steps);
DenseSteps dense_steps(std::uint64_t word);

/// Predicts the time of a sparse step of a compressed bucket whose spec names its route. Pure.
double predict_sparse_us(const CompressedTensors& tensors, const ProcessGrid& grid,
                         const LinkCosts& costs);

}  // namespace kolo
