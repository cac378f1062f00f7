#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "comm/base/dtype.h"
#include "comm/base/error.h"
#include "comm/device/device_memory.h"
#include "comm/device/stream.h"

namespace kolo {

/// How far an orderly end or an abort has come.
enum class GroupState : std::uint8_t { kActive, kFinalizing, kFinalized, kAborted };

/// Collectives of a device's own library (NCCL) among some ranks: those of a node, or all.
///
/// Every rank of the group makes the same calls in the same order; a call enqueues onto a stream
/// and returns. Nothing blocks: failures of peers show in `async_error`, never as an exception,
/// except that a call after a failure does nothing.
///
/// Shape:   all memory is device memory; `part_count` is elements of one rank's part, parts lie in
///          group order. In place where the pointers say so: `part` of a reduce-scatter may be this
///          rank's part of `whole`, likewise for an all-gather.
/// Sums:    in the dtype of the data. The order is the library's, and equal on all ranks and in all
///          runs of one job shape; kAverage divides (once, by the group's size).
/// Threads: one, the engine's.
class LocalGroup {
 public:
  virtual ~LocalGroup() = default;  ///< Aborts unless finalized.

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// "NCCL 2.28.9, 8 ranks".
  virtual std::string describe() const = 0;

  /// Device memory that collectives of this group move fastest (registered where possible). Plan
  /// time; collective. Errors: KoloError(kResources).
  virtual DeviceMemory allocate(std::size_t bytes) = 0;

  virtual void reduce_scatter(Stream& stream, const void* whole, void* part, std::size_t part_count,
                              DType dtype, ReduceOp op) = 0;
  virtual void all_gather(Stream& stream, const void* part, void* whole, std::size_t part_count,
                          DType dtype) = 0;
  /// In place.
  virtual void all_reduce(Stream& stream, void* data, std::size_t count, DType dtype,
                          ReduceOp op) = 0;

  /// The first failure, polled: a peer lost, the library's own error, or an abort of a peer.
  virtual std::optional<Error> async_error() = 0;

  /// Makes enqueued collectives return, whatever peers do; what they were to write is unspecified.
  /// Every live rank of the group must abort. Bounded: returns when done, or after `within` with
  /// false, the library left behind. Idempotent: where groups share a device, zero begins each
  /// before one is waited for, since a library may wait for the device, and so for the other's
  /// abort.
  virtual bool abort(std::chrono::milliseconds within) = 0;

  /// Begins or moves on the orderly end; collective. Call until it says kFinalized or kAborted. A
  /// group that has failed is aborted instead.
  virtual GroupState finalize() = 0;
};

}  // namespace kolo
