#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "comm/algorithms/compile.h"
#include "comm/schedule/executor.h"
#include "comm/verify/verifier.h"
#include "runtime/options/options.h"

namespace kolo {

/// Capabilities of a rank's device that affect plans.
struct DeviceTraits {
  bool network_takes_memory = false;
  bool native_spans_nodes = false;  ///< NCCL has a communicator of all ranks.
  bool native_in_nodes = false;     ///< NCCL has a communicator of each node's ranks.
};

/// Returns the option `algorithm`. In a `reproducible` job of several nodes, it replaces "auto" by
/// an algorithm that sums every element in one order: rank by rank, node by node. Pure.
AlgorithmRequest requested_algorithm(const Options& options, const ProcessGrid& grid);

/// The inputs of plans, equal on all ranks except `rank` and `cache_bytes`.
struct PlanInputs {
  int rank = 0;
  const ProcessGrid& grid;
  const Options& options;
  const LinkCosts& costs;
  const Tuning* tuning = nullptr;  ///< Replaces choices by cost; null: none.
  /// The parsed option `algorithm`.
  AlgorithmRequest algorithm = requested_algorithm(options, grid);
  std::optional<DeviceTraits> device = {};
  std::size_t cache_bytes = 0;  ///< Size of the node's last level cache; 0 if unknown.
};

/// A bucket to plan: its layout, and the schedules of all ranks.
struct BucketRequest {
  std::string name;  ///< For errors and traces.
  BucketLayout layout;
  CollectiveSpec spec;
  std::function<Schedule(int rank)> compile;  ///< Pure: returns the schedule of any rank.
  std::string reason = {};                    ///< Why this algorithm was chosen.
  std::size_t chunk_bytes = 0;                ///< As in `CompileOptions`.
};

/// Chooses the algorithm of a collective and returns the request. `inputs` must outlive it. Errors:
/// UsageError for device memory without a device, or if no algorithm serves the spec;
/// KoloError(kConfig) as `choose`.
BucketRequest request_bucket(std::string name, const CollectiveSpec& spec,
                             const BucketLayout& layout, const PlanInputs& inputs);
/// The options for schedules of buckets in this memory, except the chunk size. Errors: UsageError
/// for device memory without a device.
CompileOptions compile_options(MemoryKind memory, const PlanInputs& inputs);

/// A planned bucket for which no memory is allocated yet. The caller adds packers, codec and inputs
/// to the binding; `BucketTable` adds the offsets.
struct BucketPlan {
  Schedule schedule;  ///< This rank's, with layout and algorithm.
  Binding binding;    ///< With name, scale and stores.
  std::string reason = {};
  std::size_t chunk_bytes = 0;
};

/// Compiles this rank's schedule and fills in its binding. With the option `verify_schedules` the
/// schedules of all ranks are compiled and verified first.
///
/// Threads: pure; any.
/// Errors: errors of `compile`; KoloError(kInternal), equal on all ranks, if a schedule is wrong.
///         It names bucket, algorithm, rank and step.
BucketPlan plan_bucket(const BucketRequest& request, const PlanInputs& inputs);

}  // namespace kolo
