#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/base/error.h"
#include "comm/device/local_group.h"
#include "comm/schedule/bucket_layout.h"
#include "comm/schedule/device_run.h"
#include "comm/schedule/launch_order.h"
#include "comm/transport/transport.h"

namespace kolo {

/// Connects the device collectives of all ranks of a transport, a group's, when they are first
/// needed: from the plan of a bucket on, which all ranks make at the same agreement.
///
///   idle --expect--> expected --the invitation is here--> connecting --> connected
///
/// The first rank draws the invitation, and sends it to the others when a bucket starts: then all
/// of them expect it.
///
/// Threads: the executor's. Nothing blocks.
class LateGroup {
 public:
  /// Both outlive it.
  LateGroup(Transport& transport, GroupConnector& connector)
      : transport_(transport), connector_(connector) {}

  /// A bucket that needs the group is planned; its first iteration is `iteration`. Does nothing
  /// after the first time.
  void expect(BucketId bucket, std::uint64_t iteration);
  /// Such a bucket starts, on all ranks. The same. Errors: those of `GroupConnector::invite`.
  void start();

  /// Moves the connection on. Returns the group when it is connected, once. Errors: those of
  /// `GroupConnector` and `ConnectingGroup`.
  std::unique_ptr<LocalGroup> poll();

  /// A bucket has started, and waits for it.
  bool is_busy() const { return is_started_ && state_ != State::kOver; }
  /// What has begun is given up, and nothing begins.
  void give_up();

 private:
  enum class State : std::uint8_t { kIdle, kExpected, kConnecting, kOver };

  bool is_first() const { return transport_.rank() == 0; }

  Transport& transport_;
  GroupConnector& connector_;
  State state_ = State::kIdle;
  bool is_started_ = false;
  Tag tag_ = {};
  std::vector<std::byte> invitation_;
  std::vector<Completion> messages_;
  std::unique_ptr<ConnectingGroup> connecting_;
};

/// Runs the local steps of device buckets on streams.
///
/// There is a stream for each thing that a device does side by side: packing, which waits for the
/// caller's kernels, other kernels, collectives, copies down to staging memory, copies up from it.
/// A step is enqueued as soon as its predecessors on the device are enqueued: events between
/// streams keep them in order, and the processor waits for nothing. Only where a message must wait
/// for the device is an event polled.
///
///   packs         pack
///   collectives        reduce-scatter                               all-gather
///   down                               copy
///   (network)                               send, receive
///   up                                                     copy
///   kernels                                                     add             unpack
///
/// Threads: one, the executor's. Never blocks, except in `abort`. Steady state allocates nothing.
/// Errors:  failures of the device and its groups are kept and returned by `failure`.
class DeviceLane {
 public:
  /// `transport` and what `access` has outlive the lane.
  DeviceLane(Transport& transport, const ProcessGrid& grid, const DeviceAccess& access);
  ~DeviceLane();

  Device& device() { return access_.device; }
  /// The device's own collectives reach all ranks, or will when they are needed.
  bool has_world_group() const { return access_.world != nullptr || late_world_; }
  /// They reach the ranks of this node by themselves.
  bool has_node_group() const { return access_.node != nullptr; }
  bool network_takes_memory() const { return access_.network_takes_memory; }

  /// The peer that this rank watches while a collective of the group runs: the next one of it, so
  /// that every rank is watched by one. -1 if it is alone.
  int watched_peer(NativeGroup group) const {
    return group == NativeGroup::kNode ? next_in_node_ : next_in_world_;
  }

  /// Allocates memory and events for a device bucket, whose schedule and binding outlive the run.
  /// Where all ranks have no group yet and need one, begins to connect them. Collective, at plan
  /// time. Errors: KoloError(kResources); those of the library.
  std::unique_ptr<DeviceRun> prepare(const Schedule& schedule, const Binding& binding);

  void begin(DeviceRun& run, std::uint64_t iteration);
  /// Enqueues a step whose predecessors are enqueued (on the device) or complete (elsewhere).
  /// Returns false, having done nothing, if it is a native step whose turn has not come, or whose
  /// group is not connected.
  bool enqueue(DeviceRun& run, StepId step);
  /// After the last step was enqueued.
  void seal(DeviceRun& run);

  /// A step that is complete, or the sealed end of an iteration (no step).
  struct Completed {
    BucketId bucket;
    std::optional<StepId> step;
  };
  /// The steps and ends that completed since the last call; valid until the next.
  std::span<const Completed> poll();

  /// Whether the device has work whose end must be polled for.
  bool busy() const;

  /// The first failure of the device or of a group.
  const std::optional<Error>& failure() const { return failure_; }

  /// Makes everything enqueued return and forgets it. Blocks for a bounded time.
  void abort();
  /// Moves the groups' orderly end on; collective. Returns whether it is over.
  bool finalize();

 private:
  struct Pending {
    const Event* event;
    const DeviceRun* run;
    std::optional<StepId> step;
  };
  /// First in, first out; keeps its memory.
  class PendingQueue {
   public:
    bool empty() const { return first_ == items_.size(); }
    const Pending& front() const { return items_[first_]; }
    void push(const Pending& item) { items_.push_back(item); }
    void pop();
    void clear();

   private:
    std::vector<Pending> items_;
    std::size_t first_ = 0;
  };

  Stream& stream(DeviceLine line);
  void launch(DeviceRun& run, StepId step, Stream& stream);
  void launch_native(DeviceRun& run, const Step& step, DeviceRun::Parts& parts, Stream& stream);
  LocalGroup* group_of(const Step& step) const {
    return step.group == NativeGroup::kNode ? access_.node : access_.world;
  }
  void keep(Error error);
  void connect_world();
  void check_groups();

  DeviceAccess access_;
  int rank_;
  LaunchOrder order_;
  int next_in_node_, next_in_world_;
  std::optional<LateGroup> late_world_;
  std::unique_ptr<LocalGroup> own_world_;  // that `late_world_` has connected
  std::vector<LocalGroup*> groups_;
  std::array<std::unique_ptr<Stream>, kDeviceLines> streams_;
  std::array<PendingQueue, kDeviceLines> pending_;  // by stream
  std::vector<Completed> completed_;
  unsigned polls_ = 0;
  std::optional<Error> failure_;
};

}  // namespace kolo
