#pragma once

#include <memory>
#include <span>

#include "comm/collective/compile.h"
#include "comm/schedule/device_lane.h"
#include "comm/transport/transport.h"
#include "fusion/device_packer.h"
#include "runtime/api/options.h"
#include "runtime/engine/bucket_table.h"

namespace kolo {

/// What plans are made for and with. Threads: the engine's.
struct PlanContext {
  BucketTable& buckets;
  Executor& executor;
  Transport& transport;
  const ProcessGrid& grid;
  DeviceLane* lane = nullptr;  ///< Null without a device.
  const Options& options;
  const LinkCosts& costs;
  /// The options of these names, as they were parsed.
  AlgorithmRequest algorithm = options.algorithm;
  AlgorithmRequest device_algorithm = options.device_algorithm;
};

/// What decides the schedule of a bucket of `layout`.
/// Errors: UsageError for device memory without a device; KoloError(kConfig) as
/// `resolve_algorithm`.
CompileOptions compile_options(const PlanContext& context, const BucketLayout& layout);

/// The largest bucket of a gradient set of `bytes` in all: the option, or what costs least.
std::size_t fusion_bytes(const PlanContext& context, std::size_t bytes);

/// A packer for a staged device bucket with this schedule.
std::shared_ptr<DevicePacker> make_device_packer(const PlanContext& context,
                                                 const Schedule& schedule,
                                                 std::span<const Segment> segments);

/// How the results of a host bucket are written to tensors that live elsewhere: past the cache if
/// it could not hold the tensors of all ranks of the node anyway.
Stores unpack_stores(const BucketLayout& layout, const PlanContext& context);

/// What the steps that finish a sum multiply by: 1 / world_size for an average, else 1.
double finishing_scale(ReduceOp op, const ProcessGrid& grid);

}  // namespace kolo
