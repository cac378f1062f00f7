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

/// Abilities of a rank's device on which plans depend.
struct DeviceTraits {
  bool network_takes_memory = false;
  bool native_spans_nodes = false;  ///< Its own library has a group of all ranks,
  bool native_in_nodes = false;     ///< and of those of each node.
};

/// The option `algorithm`. For a `reproducible` job of several nodes, "auto" is the algorithm that
/// sums each element in one order, wherever it is: that of ranks, node by node. Pure.
AlgorithmRequest requested_algorithm(const Options& options, const ProcessGrid& grid);

/// The facts on which plans depend, equal on all ranks except `rank` and `cache_bytes`.
struct PlanInputs {
  int rank = 0;
  const ProcessGrid& grid;
  const Options& options;
  const LinkCosts& costs;
  /// The option of this name, as it was parsed.
  AlgorithmRequest algorithm = requested_algorithm(options, grid);
  std::optional<DeviceTraits> device = {};
  std::size_t cache_bytes = 0;  ///< Last level cache of the node; 0: unknown.
};

/// The work of all ranks on a bucket.
struct BucketRequest {
  std::string name;  ///< For errors and traces.
  BucketLayout layout;
  Goal goal;
  std::function<Schedule(int rank)> compile;  ///< Pure: gives the schedule of any rank.
  std::string reason = {};                    ///< Why it has this algorithm.
};

/// A collective, by the algorithm that inputs and layout lead to. `inputs` outlive the request.
/// Errors: UsageError for device memory without a device, or if nothing serves the goal;
/// KoloError(kConfig) as `choose`.
BucketRequest request_bucket(std::string name, const Goal& goal, const BucketLayout& layout,
                             const PlanInputs& inputs);
/// The options for schedules of buckets in this memory, but for the size of chunks. Errors:
/// UsageError for device memory without a device.
CompileOptions compile_options(MemoryKind memory, const PlanInputs& inputs);

/// What a bucket needs to run, before any memory is taken for it. The binding still lacks what is
/// known later: packers, codec and inputs, and the places that `BucketTable` gives it.
struct BucketPlan {
  Schedule schedule;  ///< With layout and algorithm.
  Binding binding;    ///< With name, scale and stores.
  std::string reason = {};
};

/// Compiles this rank's schedule and says how it runs. With the option `verify_schedules` the
/// schedules of all ranks are compiled and proved first.
///
/// Threads: pure; any.
/// Errors: those of the request; KoloError(kInternal) that names bucket, algorithm, rank and step
///         for schedules that are wrong, alike on all ranks.
BucketPlan plan_bucket(const BucketRequest& request, const PlanInputs& inputs);

}  // namespace kolo
