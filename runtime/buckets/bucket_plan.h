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
  bool native_spans_nodes = false;  ///< Its collective library has a communicator of all ranks.
  bool native_in_nodes = false;     ///< Its collective library has one of the ranks of each node.
};

/// The option `algorithm`. In a `reproducible` job of several nodes, "auto" is the algorithm that
/// sums every element in one order: rank by rank, node by node. Pure.
AlgorithmRequest requested_algorithm(const Options& options, const ProcessGrid& grid);

/// The inputs of plans, equal on all ranks except `rank` and `cache_bytes`.
struct PlanInputs {
  int rank = 0;
  const ProcessGrid& grid;
  const Options& options;
  const LinkCosts& costs;
  /// The parsed option `algorithm`.
  AlgorithmRequest algorithm = requested_algorithm(options, grid);
  std::optional<DeviceTraits> device = {};
  std::size_t cache_bytes = 0;  ///< Last level cache of the node; 0: unknown.
};

/// The work of all ranks on a bucket.
struct BucketRequest {
  std::string name;  ///< For errors and traces.
  BucketLayout layout;
  CollectiveSpec spec;
  std::function<Schedule(int rank)> compile;  ///< Pure: returns the schedule of any rank.
  std::string reason = {};                    ///< Why this algorithm was chosen.
};

/// A collective, with the algorithm that is chosen for inputs and layout. `inputs` outlive the
/// request. Errors: UsageError for device memory without a device, or if no algorithm serves the
/// spec; KoloError(kConfig) as `choose`.
BucketRequest request_bucket(std::string name, const CollectiveSpec& spec,
                             const BucketLayout& layout, const PlanInputs& inputs);
/// The options for schedules of buckets in this memory, except the chunk size. Errors: UsageError
/// for device memory without a device.
CompileOptions compile_options(MemoryKind memory, const PlanInputs& inputs);

/// What a bucket needs to run, before memory is allocated for it. Packers, codec and inputs of the
/// binding are added later, and `BucketTable` adds its offsets.
struct BucketPlan {
  Schedule schedule;  ///< With layout and algorithm.
  Binding binding;    ///< With name, scale and stores.
  std::string reason = {};
};

/// Compiles this rank's schedule and decides how it runs. With the option `verify_schedules` the
/// schedules of all ranks are compiled and verified first.
///
/// Threads: pure; any.
/// Errors: those of the request; KoloError(kInternal) that names bucket, algorithm, rank and step
///         for schedules that are wrong, the same on all ranks.
BucketPlan plan_bucket(const BucketRequest& request, const PlanInputs& inputs);

}  // namespace kolo
