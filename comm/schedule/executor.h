#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/base/clock.h"
#include "comm/schedule/binding.h"
#include "comm/schedule/device_lane.h"
#include "comm/schedule/reduce_team.h"
#include "comm/schedule/schedule.h"
#include "comm/schedule/step_progress.h"
#include "comm/transport/transport.h"

namespace kolo {

/// Runs schedules: the only code with I/O pending. Many buckets may be in flight; steps whose
/// predecessors are complete start in the order of their schedule, messages and flags before
/// kernels; buckets go on in the order of their starts. Kernels of host buckets run in `poll`,
/// long ones in parts; with a team, those that are ready run side by side, cut into pieces. Local
/// steps of device buckets are enqueued on streams (see DeviceLane), as soon as what comes before
/// them is enqueued or complete.
///
/// Threads: one, which the team helps within `poll`. Never blocks, never throws from `poll`. Steady
/// state allocates nothing: all memory of a run is made by `add`. Before it is destroyed with
/// anything in flight, the transport is shut down.
class Executor {
 public:
  /// `lane`, if there is a device, and `team`, if there are helpers, outlive the executor.
  explicit Executor(Transport& transport, DeviceLane* lane = nullptr, ReduceTeam* team = nullptr);
  ~Executor();

  /// Calls `pause` now and then while memory is made, which can take seconds.
  void on_pause(Pause pause) { pause_ = std::move(pause); }

  /// Prepares a bucket. Errors: KoloError(kResources) if arena or device cannot hold it;
  /// UsageError for a device bucket without a device.
  void add(Schedule schedule, Binding binding);

  /// Replaces one of a bucket's inputs, between iterations.
  void set_input(BucketId bucket, std::size_t index, const Event* event);

  /// Where element 0 of a bucket that has memory is, in host or device memory.
  std::byte* bucket_memory(BucketId bucket);
  /// Behind the last iteration of a device bucket that `take_enqueued` told of.
  const Event& finished_event(BucketId bucket) const;

  /// Bytes that the bucket's last or current iteration has sent to other nodes. Payloads count with
  /// the bytes in use.
  std::size_t network_bytes(BucketId bucket) const;

  /// Frees what `add` made for a bucket that is not running. After that its number may be added
  /// again. One that was abandoned is removed only if it has no messages, which may still touch it.
  void remove(BucketId bucket);

  /// Starts the bucket's next iteration; it must not be running.
  void start(BucketId bucket, std::uint64_t iteration);

  /// Forgets the current iteration of a host bucket, which is not started again; its memory
  /// stays, for peers and messages may still touch it.
  void abandon(BucketId bucket);
  /// A peer still writes to tensors of the bucket, whose iteration was given up. Changes in `poll`.
  bool is_revoking(BucketId bucket) const;

  /// Moves everything on as far as it goes now; kernels write at most about 1 MiB per bucket and
  /// thread, so that polling goes on between them.
  /// Returns whether anything moved.
  bool poll();

  /// Buckets that finished since the last call; valid until the next `poll`.
  std::span<const BucketId> take_finished();
  /// Device buckets all of whose steps were enqueued since the last call: a stream that waits for
  /// their `finished_event` sees their result. Valid until the next `poll`.
  std::span<const BucketId> take_enqueued();

  /// Whether work on the device must be polled for.
  bool device_busy() const;
  /// A failure of the device, if there was one.
  std::optional<Error> device_failure() const {
    return lane_ != nullptr ? lane_->failure() : std::nullopt;
  }

  bool busy() const { return !active_.empty() || !revoking_.empty(); }

  /// The steps that the first running bucket waits for ("bucket 'x' iteration 7: recv 0 from rank
  /// 2, ...").
  std::string describe_wait() const;
  /// Ranks that running buckets wait for; may repeat.
  void append_awaited_peers(std::vector<int>& peers) const;

  /// Messages to or from other nodes are in flight.
  bool has_messages_in_flight() const;

  /// Forgets everything in flight: what peers have sent of it, and of what comes next or was
  /// abandoned, is no stray for the transport. Nothing touches the memory any more once the
  /// transport has been shut down, the device aborted, and `poll_revoking` has returned true.
  void cancel();

  /// The part of `poll` that is left after `cancel`. Returns whether no peer writes to tensors of
  /// what was given up.
  bool poll_revoking();
  /// Peers that still do have been stopped: no longer waits for them, and warns.
  void forget_writers();

  /// After `cancel`: gives up what messages are still in flight. Returns whether nothing touches
  /// the memory any more.
  bool let_go();

 private:
  struct Run;

  bool advance(Run& run);
  static bool finish(Run& run);
  void revoke(Run& run);
  bool complete_pending(Run& run);
  bool is_raised(const Run& run, const Step& await) const;
  bool enqueue_ready(Run& run);
  void seal(Run& run);
  bool issue_ready(Run& run);
  void issue(Run& run, StepId step);
  std::size_t compute_next(Run& run);
  void compute_pieces(Run& run);
  std::size_t run_codec(Run& run);
  void reserve_pieces(const Schedule& schedule);
  std::byte* address(Run& run, const Range& range);
  /// The memory of a message.
  std::span<std::byte> memory(Run& run, const Range& range);

  Transport& transport_;
  DeviceLane* lane_;
  ReduceTeam* team_;
  const std::size_t threads_;  // that compute
  Pause pause_;
  std::vector<std::unique_ptr<Run>> runs_;  // by bucket
  std::vector<Run*> active_;                // in order of start
  std::vector<Run*> revoking_;              // given up, while peers write to their tensors
  std::vector<BucketId> finished_, taken_finished_;
  std::vector<BucketId> enqueued_, taken_enqueued_;
  std::vector<KernelPiece> pieces_;  // that are computed
  std::vector<StepId> computed_;     // steps that end with them
};

}  // namespace kolo
