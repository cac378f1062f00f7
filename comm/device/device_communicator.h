#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/base/error.h"
#include "comm/base/reduction.h"
#include "comm/device/device.h"
#include "comm/device/stream.h"

namespace kolo {

/// State of a group, from active to finalized or aborted.
enum class CommunicatorState : std::uint8_t { kActive, kFinalizing, kFinalized, kAborted };

/// One rank's elements in device memory, to be sent to that rank or received from it.
struct GroupPart {
  void* data = nullptr;  ///< Ignored if `count` is 0.
  std::size_t count = 0;
};

/// A tensor in device memory with a part for each rank, side by side in group order. Either the
/// parts are summed, each to its rank, or each rank's part is gathered to all.
struct GroupTensor {
  const void* source = nullptr;              ///< For sums: all parts. For a gather: this rank's
                                             ///< part.
  void* target = nullptr;                    ///< For sums: this rank's part. For a gather: all
                                             ///< parts.
  std::span<const std::size_t> counts = {};  ///< Elements of each part, equal on all ranks.
};

/// Collectives of a device library (NCCL) among some ranks, such as the ranks of a node or all
/// ranks.
///
/// All ranks of the group make the same calls in the same order. A call enqueues on a stream and
/// returns; it never blocks. Failures of peers show in `async_error`, never as an exception, and a
/// call after a failure does nothing.
///
/// Shape:   all memory is device memory. `part_count` is the number of elements of one rank's part;
///          parts lie side by side in group order. Pointers decide what is in place: `part` of a
///          reduce-scatter may be this rank's part of `whole`; likewise for an all-gather.
/// Sums:    in the dtype of the data and the library's order, which is equal on all ranks and in
///          all runs of a job of one shape. kAverage divides once, by the group's size.
/// Threads: one, the engine's.
class DeviceCommunicator {
 public:
  virtual ~DeviceCommunicator() = default;  ///< Aborts unless finalized.

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Library, version and size: "NCCL 2.28.9, 8 ranks".
  virtual std::string describe() const = 0;

  /// Device memory registered for the fastest collectives of this group, where possible. At plan
  /// time; collective. Errors: KoloError(kResources).
  virtual DeviceMemory allocate(std::size_t bytes) = 0;

  virtual void reduce_scatter(Stream& stream, const void* whole, void* part, std::size_t part_count,
                              DType dtype, ReduceOp op) = 0;
  virtual void all_gather(Stream& stream, const void* part, void* whole, std::size_t part_count,
                          DType dtype) = 0;
  /// As above, with parts of unequal lengths, of one or several tensors in one launch. If all parts
  /// but one are empty, `reduce_parts` is a reduce to that rank, and `gather_parts` a broadcast
  /// from it. Pointers to empty parts, and to tensors without elements, are ignored.
  virtual void reduce_parts(Stream& stream, std::span<const GroupTensor> tensors, DType dtype,
                            ReduceOp op) = 0;
  virtual void gather_parts(Stream& stream, std::span<const GroupTensor> tensors, DType dtype) = 0;
  /// Sends `sent[i]` to rank i and receives from it; lengths match on both sides. Sent and received
  /// memory do not overlap, and sent memory is not changed. A rank may send to itself, also in
  /// place. With several tensors, both lists have an entry per rank for the first tensor, then for
  /// the next.
  virtual void exchange(Stream& stream, std::span<const GroupPart> sent,
                        std::span<const GroupPart> received, DType dtype) = 0;
  /// In place if `target` equals `source`.
  virtual void all_reduce(Stream& stream, const void* source, void* target, std::size_t count,
                          DType dtype, ReduceOp op) = 0;

  /// The first failure, polled: a lost peer, an error of the library, or an abort of a peer.
  virtual std::optional<Error> async_error() = 0;

  /// Makes enqueued collectives return, whatever peers do; their results are unspecified. Every
  /// live rank of the group must abort. Returns true when done, or false after `within`; the
  /// library object is then leaked. Idempotent. If several groups share a device, begin the abort
  /// of each with zero before waiting for one: a library may wait for the device, and so for
  /// another group's abort.
  virtual bool abort(std::chrono::milliseconds within) = 0;

  /// Begins or continues the orderly end. Collective; call it until it returns kFinalized or
  /// kAborted. A group that has failed is aborted instead.
  virtual CommunicatorState finalize() = 0;
};

/// A group whose ranks are still connecting. Destroying it gives the group up.
class ConnectingCommunicator {
 public:
  virtual ~ConnectingCommunicator() = default;
  /// The group, once all its ranks are connected; null until then. Do not call it again after it
  /// has returned the group or thrown. Errors: KoloError(kTimeout) if the ranks do not connect in
  /// time; kPeerLost or kInternal with the library's reason.
  virtual std::unique_ptr<DeviceCommunicator> poll() = 0;
};

/// Creates groups of the device's library while a job runs, among any ranks, without blocking: all
/// members connect with a unique id that one of them has made.
///
/// Threads: one, the engine's. Nothing blocks.
class CommunicatorConnector {
 public:
  virtual ~CommunicatorConnector() = default;

  /// The length of a unique id, equal on all ranks.
  virtual std::size_t unique_id_bytes() const = 0;
  /// Makes a unique id. The caller must be one of the members, and must stay until they are
  /// connected. Errors: those of the library.
  virtual std::vector<std::byte> make_unique_id() = 0;
  /// Begins to connect this rank as number `rank` of `size`. Errors: KoloError(kConfig) if the
  /// library differs from that of the inviting rank; otherwise those of the library.
  virtual std::unique_ptr<ConnectingCommunicator> connect(std::span<const std::byte> unique_id,
                                                          int rank, int size) = 0;
};

/// The device of a rank and its collectives. Members are destroyed in reverse order, so groups go
/// first.
struct DeviceContext {
  std::unique_ptr<Device> device;
  std::unique_ptr<DeviceCommunicator> node;   ///< The ranks of this rank's node.
  std::unique_ptr<DeviceCommunicator> world;  ///< All ranks.
  /// Connects device groups for other groups of ranks; null: unsupported.
  std::unique_ptr<CommunicatorConnector> connector;
  bool network_takes_memory = false;  ///< True if the network takes memory of this device on every
                                      ///< rank, so nothing need be staged.
};

/// The device and the device groups of a group of ranks, which outlive this struct.
struct DeviceAccess {
  Device& device;
  DeviceCommunicator* node = nullptr;   ///< Null: no group.
  DeviceCommunicator* world = nullptr;  ///< Group of all ranks. Null: not connected yet.
  CommunicatorConnector* connector =
      nullptr;  ///< Connects `world` when it is needed; null: unsupported.
  bool network_takes_memory = false;

  static DeviceAccess of(const DeviceContext& device_context) {
    return {.device = *device_context.device,
            .node = device_context.node.get(),
            .world = device_context.world.get(),
            .network_takes_memory = device_context.network_takes_memory};
  }
};

}  // namespace kolo
