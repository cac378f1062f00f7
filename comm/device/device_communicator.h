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

enum class CommunicatorState : std::uint8_t { kActive, kFinalizing, kFinalized, kAborted };

/// Elements in device memory that are sent to one rank, or received from it.
struct GroupPart {
  void* data = nullptr;  ///< Ignored if `count` is 0.
  std::size_t count = 0;
};

/// A tensor in device memory with one part per rank, stored in group order. `reduce_parts` sums
/// each part at its rank; `gather_parts` copies each rank's part to all ranks.
struct GroupTensor {
  const void* source = nullptr;              ///< All parts; for a gather, this rank's part.
  void* target = nullptr;                    ///< This rank's part; for a gather, all parts.
  std::span<const std::size_t> counts = {};  ///< Elements of each part, equal on all ranks.
};

/// A group of ranks that run collectives of a device library (NCCL).
///
/// All ranks of the group make the same calls in the same order. A call enqueues work on a stream
/// and returns; it never waits for peers. If the library must reach them before it can enqueue the
/// work, `is_launching` is true until it has. `async_error` reports failures of peers; they are
/// never thrown. A call after a failure does nothing.
///
/// Shape:   all memory is device memory. `part_count` is the number of elements of one rank's part;
///          parts are contiguous in group order. A reduce-scatter or all-gather is in place if
///          `part` points to this rank's part of `whole`.
/// Sums:    have the dtype of the data and the library's order of summation, which is the same on
///          all ranks and in all runs with the same ranks and nodes. kAverage divides once.
/// Threads: the engine's only.
class DeviceCommunicator {
 public:
  virtual ~DeviceCommunicator() = default;  ///< Aborts unless the group is finalized.

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Describes library, version and size: "NCCL 2.28.9, 8 ranks".
  virtual std::string describe() const = 0;

  /// Allocates device memory, registered with the library for its fastest collectives if possible.
  /// Collective; call it at plan time. Errors: KoloError(kResources).
  virtual DeviceMemory allocate(std::size_t bytes) = 0;

  virtual void reduce_scatter(Stream& stream, const void* whole, void* part, std::size_t part_count,
                              DType dtype, ReduceOp op) = 0;
  virtual void all_gather(Stream& stream, const void* part, void* whole, std::size_t part_count,
                          DType dtype) = 0;
  /// `reduce_parts` and `gather_parts` are a reduce-scatter and an all-gather of one or several
  /// tensors in one launch, with parts of unequal lengths. If only one part has elements, they are
  /// a reduce to its rank and a broadcast from its rank. Pointers to empty memory are ignored.
  virtual void reduce_parts(Stream& stream, std::span<const GroupTensor> tensors, DType dtype,
                            ReduceOp op) = 0;
  virtual void gather_parts(Stream& stream, std::span<const GroupTensor> tensors, DType dtype) = 0;
  /// Sends `sent[i]` to rank i and receives `received[i]` from rank i; lengths match on both sides.
  /// Sent memory is not changed; it must not overlap received memory, except that a rank may send
  /// to itself in place. For several tensors, the lists hold one entry per rank for each tensor.
  virtual void exchange(Stream& stream, std::span<const GroupPart> sent,
                        std::span<const GroupPart> received, DType dtype) = 0;
  /// Combines `source` of all ranks in `target` of each rank; in place if the two are equal.
  virtual void all_reduce(Stream& stream, const void* source, void* target, std::size_t count,
                          DType dtype, ReduceOp op) = 0;

  /// Polls the library. Returns whether the last call is not on its stream yet. Until it is, the
  /// caller makes no other call, and enqueues nothing on the stream: an event would come too early.
  virtual bool is_launching() { return false; }

  /// Polls the library. Returns the first failure, if any: a lost peer, an error of the library, or
  /// an abort by a peer.
  virtual std::optional<Error> async_error() = 0;

  /// Makes enqueued collectives return without their peers; their results are unspecified. Every
  /// live rank of the group must abort. Blocks for at most `within`. Returns true when the abort is
  /// complete. Idempotent. If several groups share a device, call `abort(0)` on each of them before
  /// waiting for one: the abort of one group may wait for the device, and thereby for the abort of
  /// another. If an abort does not end, call `Device::note_stuck` before anything is freed.
  virtual bool abort(std::chrono::milliseconds within) = 0;

  /// Begins or continues an orderly shutdown. Collective; call it until it returns kFinalized or
  /// kAborted. A group that has failed is aborted instead.
  virtual CommunicatorState finalize() = 0;
};

/// A group whose ranks are still connecting. The destructor gives up the group.
class ConnectingCommunicator {
 public:
  virtual ~ConnectingCommunicator() = default;
  /// Returns the group once all its ranks are connected, and null until then. Must not be called
  /// again after it has returned the group or thrown. Errors: KoloError(kTimeout) if the ranks do
  /// not connect in time; kPeerLost or kInternal with the library's reason.
  virtual std::unique_ptr<DeviceCommunicator> poll() = 0;
};

/// Creates groups of the device's library among any ranks while a job runs. All members connect
/// with a unique id that one of them has made.
///
/// Threads: the engine's only; no call blocks.
class CommunicatorConnector {
 public:
  virtual ~CommunicatorConnector() = default;

  /// The length of a unique id, equal on all ranks.
  virtual std::size_t unique_id_bytes() const = 0;
  /// Makes a unique id. The caller must be one of the members, and must keep running until all
  /// members are connected. Errors: those of the library.
  virtual std::vector<std::byte> make_unique_id() = 0;
  /// Begins to connect this rank as rank `rank` of a group of `size` ranks. Errors:
  /// KoloError(kConfig) if the library differs from that of the rank that made the id; otherwise
  /// those of the library.
  virtual std::unique_ptr<ConnectingCommunicator> connect(std::span<const std::byte> unique_id,
                                                          int rank, int size) = 0;
};

/// The device of a rank and its device groups. Fields are destroyed in reverse order, so the groups
/// are destroyed before the device.
struct DeviceContext {
  std::unique_ptr<Device> device;
  /// Group of the ranks of this rank's node; null if these are all ranks.
  std::unique_ptr<DeviceCommunicator> node;
  std::unique_ptr<DeviceCommunicator> world;  ///< Group of all ranks.
  /// Connects device groups of other ranks; null if this is not supported.
  std::unique_ptr<CommunicatorConnector> connector;
  bool network_takes_memory = false;  ///< Whether the network accepts this device's memory.
};

/// References to the device and the device groups that a group of ranks uses. The objects must
/// outlive this struct.
struct DeviceAccess {
  Device& device;
  DeviceCommunicator* node = nullptr;          ///< Group of this node's ranks, perhaps `world`.
  DeviceCommunicator* world = nullptr;         ///< Group of all ranks; null if not connected.
  CommunicatorConnector* connector = nullptr;  ///< Connects `world` on first use, or null.
  bool network_takes_memory = false;

  static DeviceAccess of(const DeviceContext& device_context) {
    return {.device = *device_context.device,
            .node = device_context.node ? device_context.node.get() : device_context.world.get(),
            .world = device_context.world.get(),
            .network_takes_memory = device_context.network_takes_memory};
  }
};

}  // namespace kolo
