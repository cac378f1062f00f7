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

/// A group whose ranks are being connected. Destroyed before they are, it is given up.
class ConnectingGroup {
 public:
  virtual ~ConnectingGroup() = default;
  /// The group, once all its ranks are connected; null before. Not called again after either.
  /// Errors: KoloError(kTimeout) when the ranks are not connected in time, kPeerLost or kInternal
  /// with the library's reason.
  virtual std::unique_ptr<LocalGroup> poll() = 0;
};

/// Makes groups of the device's library after the start of a job, among any ranks, without waiting
/// for them: all members connect with an invitation that one of them has drawn.
///
/// Threads: one, the engine's. Nothing blocks.
class GroupConnector {
 public:
  virtual ~GroupConnector() = default;

  /// The length of an invitation, equal on all ranks.
  virtual std::size_t invitation_bytes() const = 0;
  /// A new invitation. Whoever draws it is one of the members, and stays until they are connected.
  /// Errors: those of the library.
  virtual std::vector<std::byte> invite() = 0;
  /// Begins to connect this rank as number `rank` of `size`. Errors: KoloError(kConfig) if the
  /// libraries of this rank and of the inviting one differ, else those of the library.
  virtual std::unique_ptr<ConnectingGroup> connect(std::span<const std::byte> invitation, int rank,
                                                   int size) = 0;
};

/// The device of a rank and its collectives. Members are destroyed in reverse order: the groups
/// first.
struct DevicePlane {
  std::unique_ptr<Device> device;
  std::unique_ptr<LocalGroup> node;   ///< The ranks of this rank's node.
  std::unique_ptr<LocalGroup> world;  ///< All ranks.
  /// Connects those of other groups of ranks; null: they have none.
  std::unique_ptr<GroupConnector> connector;
  bool network_takes_memory = false;  ///< True if the network takes memory of this device on every
                                      ///< rank, so nothing need be staged.
};

/// What a group of ranks has of the device. Members outlive it.
struct DeviceAccess {
  Device& device;
  LocalGroup* node = nullptr;           ///< Null: none.
  LocalGroup* world = nullptr;          ///< Of all of them. Null: none yet.
  GroupConnector* connector = nullptr;  ///< Connects `world` when it is needed; null: nobody does.
  bool network_takes_memory = false;

  static DeviceAccess of(const DevicePlane& plane) {
    return {.device = *plane.device,
            .node = plane.node.get(),
            .world = plane.world.get(),
            .network_takes_memory = plane.network_takes_memory};
  }
};

}  // namespace kolo
