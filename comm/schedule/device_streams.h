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

/// Connects the device communicator of all ranks of a transport (of the job or a group) when it is
/// first needed. All ranks plan the first bucket that uses it at the same agreement.
///
///   idle --expect--> expected --unique id arrives--> connecting --> connected
///
/// Rank 0 makes the unique id and sends it to the other ranks when such a bucket starts. Until then
/// no message is in flight, so a group that never starts one leaves nothing behind.
///
/// Threads: the executor's. Never blocks.
class LazyCommunicator {
 public:
  /// `transport` and `connector` must outlive this object.
  LazyCommunicator(Transport& transport, CommunicatorConnector& connector)
      : transport_(transport), connector_(connector) {}

  /// Notes that a planned bucket with this first iteration needs the communicator. Only the first
  /// call has an effect.
  void expect(BucketId bucket, std::uint64_t iteration);
  /// Notes that a bucket that needs the communicator starts. All ranks call it; only the first call
  /// has an effect. Errors: as `CommunicatorConnector::make_unique_id`.
  void start();

  /// Advances the connection. Returns the communicator once, when it is connected; otherwise null.
  /// Errors: as `CommunicatorConnector` and `ConnectingCommunicator`.
  std::unique_ptr<DeviceCommunicator> poll();

  /// Whether a bucket has started and waits for the communicator.
  bool is_busy() const { return is_started_ && state_ != State::kOver; }
  /// Ends a connection in progress and prevents later ones.
  void give_up();
  /// Cancels messages in flight. Returns whether none is left.
  bool let_go();

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
/// kernels; other kernels; collectives; and, with staging memory, copies in each direction. A step
/// is enqueued when its predecessors on the device are enqueued. Events between streams keep the
/// order, so the CPU does not wait. An event is polled only if a message must wait for it.
///
///   packs         pack
///   collectives        reduce-scatter                               all-gather
///   down                               copy
///   (network)                               send, receive
///   up                                                     copy
///   kernels                                                     add             unpack
///
/// Threads: one, the executor's. Never blocks. Steady state allocates nothing.
/// Errors:  failures of the device and its communicators do not throw; `failure` returns the first.
class DeviceStreams {
 public:
  /// `transport` and the objects that `access` refers to must outlive the streams.
  DeviceStreams(Transport& transport, const ProcessGrid& grid, const DeviceAccess& access);
  ~DeviceStreams();

  Device& device() { return access_.device; }
  /// Whether native collectives of all ranks are possible now, or after a connection on demand.
  bool has_world_group() const { return access_.world != nullptr || late_world_; }
  /// Whether native collectives of this node's ranks are possible.
  bool has_node_group() const { return access_.node != nullptr; }
  bool network_takes_memory() const { return access_.network_takes_memory; }

  /// Returns the peer that this rank watches for failure while a collective of the group runs: the
  /// next rank of the group, so that every rank is watched. Returns -1 if this rank is alone.
  int watched_peer(NativeGroup group) const {
    return group == NativeGroup::kNode ? next_in_node_ : next_in_world_;
  }

  /// Allocates memory and events for a device bucket, whose schedule and binding must outlive the
  /// run. If the bucket has native steps and the communicator of all ranks is not connected, begins
  /// to connect it. Collective: all ranks call it together, at plan time. Errors:
  /// KoloError(kResources); errors of the device library.
  std::unique_ptr<DeviceRun> prepare(const Schedule& schedule, const Binding& binding);

  void begin(DeviceRun& run, std::uint64_t iteration);
  /// Enqueues a step whose predecessors are enqueued (on the device) or complete (elsewhere). For a
  /// native step, returns false while other native steps come first, its communicator is not
  /// connected, or the library is still launching it.
  bool enqueue(DeviceRun& run, StepId step);
  /// Ends an iteration; called after its last step on the device was enqueued.
  void seal(DeviceRun& run);

  /// A completed step; without a step, the completed end of an iteration.
  struct Completed {
    BucketId bucket;
    std::optional<StepId> step;
  };
  /// Returns the steps and iterations completed since the last call; valid until the next call.
  std::span<const Completed> poll();

  /// Whether the device has work that must be polled.
  bool busy() const;

  /// The first failure of the device or of a communicator.
  const std::optional<Error>& failure() const { return failure_; }

  /// Begins or continues to abort the communicators, so that enqueued work ends, and forgets this
  /// work. Returns true once all aborts are complete.
  bool abort();
  /// Cancels messages in flight, except those of runs. Returns whether none is left.
  bool let_go() { return !late_world_ || late_world_->let_go(); }
  /// Advances the orderly shutdown of the communicators. Collective: all ranks call it. Returns
  /// true once it is complete.
  bool finalize();

 private:
  struct Pending {
    const Event* event;
    const DeviceRun* run;
    std::optional<StepId> step;
  };
  /// A FIFO queue that keeps its memory when it becomes empty.
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
  static void launch_codec(DeviceRun& run, const Step& step, Stream& stream);
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
  std::unique_ptr<DeviceCommunicator> own_world_;  // set once `late_world_` has connected
  std::vector<DeviceCommunicator*> groups_;
  const DeviceRun::OnDevice* launching_ = nullptr;  // the native step that the library launches
  std::array<std::unique_ptr<Stream>, kDeviceLines> streams_;
  std::array<PendingQueue, kDeviceLines> pending_;  // by DeviceLine
  std::vector<Completed> completed_;
  unsigned polls_ = 0;
  std::optional<Error> failure_;
};

}  // namespace kolo
