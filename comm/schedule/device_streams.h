#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/base/error.h"
#include "comm/device/device_communicator.h"
#include "comm/schedule/bucket_layout.h"
#include "comm/schedule/device_run.h"
#include "comm/schedule/launch_order.h"
#include "comm/transport/transport.h"

namespace kolo {

/// Connects the device collectives among all ranks of a transport (such as a group's) when they are
/// first needed. This begins with the plan of a bucket, which all ranks make at the same agreement.
///
///   idle --expect--> expected --unique id arrives--> connecting --> connected
///
/// The first rank makes the unique id, and sends it to the others when a bucket starts, because by
/// then all of them expect it.
///
/// Threads: the executor's. Never blocks.
class LazyCommunicator {
 public:
  /// `transport` and `connector` outlive it.
  LazyCommunicator(Transport& transport, CommunicatorConnector& connector)
      : transport_(transport), connector_(connector) {}

  /// Notes that a planned bucket needs the group; its first iteration is `iteration`. Only the
  /// first call counts.
  void expect(BucketId bucket, std::uint64_t iteration);
  /// Notes that such a bucket starts, on all ranks. Only the first call counts. Errors: as
  /// `CommunicatorConnector::make_unique_id`.
  void start();

  /// Advances the connection. Returns the group once, when it is connected. Errors: those of
  /// `CommunicatorConnector` and `ConnectingCommunicator`.
  std::unique_ptr<DeviceCommunicator> poll();

  /// Whether a bucket has started and waits for the group.
  bool is_busy() const { return is_started_ && state_ != State::kOver; }
  /// Gives up a connection in progress, and starts none any more.
  void give_up();

 private:
  enum class State : std::uint8_t { kIdle, kExpected, kConnecting, kOver };

  bool is_first() const { return transport_.rank() == 0; }

  Transport& transport_;
  CommunicatorConnector& connector_;
  State state_ = State::kIdle;
  bool is_started_ = false;
  Tag tag_ = {};
  std::vector<std::byte> unique_id_;
  std::vector<Completion> messages_;
  std::unique_ptr<ConnectingCommunicator> connecting_;
};

/// Runs the local steps of device buckets on streams.
///
/// There is one stream for each kind of concurrent work: packing, which waits for the caller's
/// kernels; other kernels; collectives; copies down to staging memory; copies up from it. A step is
/// enqueued as soon as its predecessors on the device are enqueued: events between streams keep the
/// order without the processor waiting. An event is polled only if a message must wait for the
/// device.
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
class DeviceStreams {
 public:
  /// `transport` and the members of `access` outlive the streams.
  DeviceStreams(Transport& transport, const ProcessGrid& grid, const DeviceAccess& access);
  ~DeviceStreams();

  Device& device() { return access_.device; }
  /// Whether the device's native collectives reach all ranks, or will do so when needed.
  bool has_world_group() const { return access_.world != nullptr || late_world_; }
  /// Whether the device has native collectives among the ranks of this node.
  bool has_node_group() const { return access_.node != nullptr; }
  bool network_takes_memory() const { return access_.network_takes_memory; }

  /// The peer that this rank watches while a collective of the group runs: its next rank, so that
  /// every rank is watched by one. -1 if this rank is alone.
  int watched_peer(NativeGroup group) const {
    return group == NativeGroup::kNode ? next_in_node_ : next_in_world_;
  }

  /// Allocates memory and events for a device bucket, whose schedule and binding outlive the run.
  /// If the bucket needs a group of all ranks and there is none yet, begins to connect it.
  /// Collective, at plan time. Errors: KoloError(kResources); those of the library.
  std::unique_ptr<DeviceRun> prepare(const Schedule& schedule, const Binding& binding);

  void begin(DeviceRun& run, std::uint64_t iteration);
  /// Enqueues a step whose predecessors are enqueued (on the device) or complete (elsewhere). Does
  /// nothing and returns false for a native step whose turn has not come, or whose group is not
  /// connected.
  bool enqueue(DeviceRun& run, StepId step);
  /// Ends an iteration after its last step was enqueued.
  void seal(DeviceRun& run);

  /// A completed step, or (without a step) the completed end of an iteration.
  struct Completed {
    BucketId bucket;
    std::optional<StepId> step;
  };
  /// Steps and ends completed since the last call; valid until the next call.
  std::span<const Completed> poll();

  /// Whether the device has work that must be polled.
  bool busy() const;

  /// The first failure of the device or of a group.
  const std::optional<Error>& failure() const { return failure_; }

  /// Makes all enqueued work return, and forgets it. Blocks for a bounded time.
  void abort();
  /// Advances the groups' orderly end; collective. Returns whether it is complete.
  bool finalize();

 private:
  struct Pending {
    const Event* event;
    const DeviceRun* run;
    std::optional<StepId> step;
  };
  /// A FIFO queue that keeps its memory.
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
  DeviceCommunicator* group_of(const Step& step) const {
    return step.group == NativeGroup::kNode ? access_.node : access_.world;
  }
  void keep(Error error);
  void connect_world();
  void check_groups();

  DeviceAccess access_;
  int rank_;
  LaunchOrder order_;
  int next_in_node_, next_in_world_;
  std::optional<LazyCommunicator> late_world_;
  std::unique_ptr<DeviceCommunicator> own_world_;  // connected by `late_world_`
  std::vector<DeviceCommunicator*> groups_;
  std::array<std::unique_ptr<Stream>, kDeviceLines> streams_;
  std::array<PendingQueue, kDeviceLines> pending_;  // by stream
  std::vector<Completed> completed_;
  unsigned polls_ = 0;
  std::optional<Error> failure_;
};

}  // namespace kolo
