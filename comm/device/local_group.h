#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "comm/base/dtype.h"
#include "comm/base/error.h"
#include "comm/device/device_memory.h"
#include "comm/device/stream.h"

namespace kolo {

/// State of a group, from active to its orderly end or abort.
enum class GroupState : std::uint8_t { kActive, kFinalizing, kFinalized, kAborted };

/// Elements in device memory for one rank of a group, or from it.
struct GroupPart {
  void* data = nullptr;  ///< Not looked at if there are none.
  std::size_t count = 0;
};

/// A tensor in device memory that has a part for each rank, side by side in group order: the parts
/// are summed to their ranks, or each rank's part goes to all.
struct GroupTensor {
  const void* source = nullptr;              ///< Sums: all parts. Else this rank's.
  void* target = nullptr;                    ///< Sums: this rank's part. Else all parts.
  std::span<const std::size_t> counts = {};  ///< Elements of each part, equal on all ranks.
};

/// Collectives of a device library (NCCL) among some ranks: those of a node, or all.
///
/// All ranks of the group make the same calls in the same order. A call enqueues on a stream and
/// returns. Nothing blocks: failures of peers show in `async_error`, never as an exception, and a
/// call after a failure does nothing.
///
/// Shape:   all memory is device memory. `part_count` is the number of elements of one rank's part;
///          parts lie side by side in group order. In place where the pointers say so: `part` of a
///          reduce-scatter may be this rank's part of `whole`; likewise for an all-gather.
/// Sums:    in the dtype of the data, in the order of the library, which is equal on all ranks and
///          in all runs of a job of one shape. kAverage divides once, by the group's size.
/// Threads: one, the engine's.
class LocalGroup {
 public:
  virtual ~LocalGroup() = default;  ///< Aborts unless finalized.

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Library, version and size: "NCCL 2.28.9, 8 ranks".
  virtual std::string describe() const = 0;

  /// Device memory that collectives of this group move fastest, registered where possible. At plan
  /// time; collective. Errors: KoloError(kResources).
  virtual DeviceMemory allocate(std::size_t bytes) = 0;

  virtual void reduce_scatter(Stream& stream, const void* whole, void* part, std::size_t part_count,
                              DType dtype, ReduceOp op) = 0;
  virtual void all_gather(Stream& stream, const void* part, void* whole, std::size_t part_count,
                          DType dtype) = 0;
  /// The same with parts of any lengths, of one tensor or of several in one launch. Where all parts
  /// but one are empty, the first is a reduce to that rank, and the second a broadcast from it. The
  /// pointer to an empty part, and to parts that are all empty, is not looked at.
  virtual void reduce_parts(Stream& stream, std::span<const GroupTensor> tensors, DType dtype,
                            ReduceOp op) = 0;
  virtual void gather_parts(Stream& stream, std::span<const GroupTensor> tensors, DType dtype) = 0;
  /// What each rank sends to rank i, `sent[i]`, is as long as what that one receives from it, and
  /// lies elsewhere. Nothing that is sent is changed. A rank may send to itself, also to where it
  /// sends from. With several tensors, both lists have a place for each rank for the first tensor,
  /// then for the next.
  virtual void exchange(Stream& stream, std::span<const GroupPart> sent,
                        std::span<const GroupPart> received, DType dtype) = 0;
  /// In place where `target` is `source`.
  virtual void all_reduce(Stream& stream, const void* source, void* target, std::size_t count,
                          DType dtype, ReduceOp op) = 0;

  /// The first failure, polled: a lost peer, an error of the library, or an abort of a peer.
  virtual std::optional<Error> async_error() = 0;

  /// Makes enqueued collectives return, whatever peers do; their results are unspecified. Every
  /// live rank of the group must abort. Returns true when done, or false after `within`; the
  /// library object then stays behind. Idempotent. Where groups share a device, begin each with
  /// zero before waiting for one: a library may wait for the device, and so for the abort of
  /// another group.
  virtual bool abort(std::chrono::milliseconds within) = 0;

  /// Begins or continues the orderly end. Collective; call it until it returns kFinalized or
  /// kAborted. A group that has failed is aborted instead.
  virtual GroupState finalize() = 0;
};

}  // namespace kolo
