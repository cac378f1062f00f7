#pragma once

#include <memory>
#include <span>

#include "comm/base/error.h"
#include "comm/device/bounce_buffer.h"
#include "comm/schedule/device_streams.h"
#include "comm/transport/transport.h"
#include "fusion/device_packer.h"
#include "runtime/buckets/bucket_plan.h"
#include "runtime/buckets/bucket_table.h"
#include "topology/discovery.h"

namespace kolo {

/// The parts of an engine that planning needs. Threads: the engine's.
struct PlanContext {
  BucketTable& buckets;
  Executor& executor;
  Transport& transport;
  const ProcessGrid& grid;
  DeviceStreams* streams = nullptr;  ///< Null without a device.
  CopyStreams* copies = nullptr;     ///< Null without a device.
  const Options& options;
  const LinkCosts& costs;
  const Tuning* tuning = nullptr;  ///< As in `PlanInputs`.
  /// The parsed option `algorithm`.
  AlgorithmRequest algorithm = requested_algorithm(options, grid);
  std::size_t cache_bytes = last_level_cache_bytes();

  PlanInputs inputs() const;
};

/// Returns whether an error of planning occurs on all ranks, because an option or a call is wrong.
/// Other errors, such as a lack of memory, may occur on this rank only.
bool fails_alike(const Error& error);

/// Returns the target size of buckets in bytes, for a set with `bytes` bytes of gradients in
/// `memory`: the option, or the size tuned for `placement`, or that of the lowest predicted time.
std::size_t fusion_bytes(const PlanContext& context, MemoryKind memory, std::size_t bytes,
                         Placement placement);

/// The `DevicePackerOptions` of a device bucket that depend on the operation.
struct DevicePacking {
  bool out_of_place = false;
  double unpack_scale = 1.0;
};

/// Makes a packer for a staged device bucket with this schedule.
std::shared_ptr<DevicePacker> make_device_packer(const PlanContext& context,
                                                 const Schedule& schedule,
                                                 std::span<const Segment> segments,
                                                 const DevicePacking& packing = {});

}  // namespace kolo
