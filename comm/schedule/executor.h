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
#include "comm/schedule/device_streams.h"
#include "comm/schedule/reduce_team.h"
#include "comm/schedule/schedule.h"
#include "comm/schedule/step_progress.h"
#include "comm/transport/transport.h"

namespace kolo {

/// Runs schedules; the only code with I/O pending. Many buckets may be in flight. Steps whose
/// predecessors are complete start in the order of their schedule, messages and flags before
/// kernels; buckets advance in the order of their starts. Kernels of host buckets run in `poll`,
/// long ones in parts; with a team, ready kernels are cut into pieces that run concurrently. Local
/// steps of device buckets are enqueued on streams (see DeviceStreams) as soon as their
/// predecessors are enqueued or complete.
///
/// Threads: one; the team helps it within `poll`. Never blocks; `poll` never throws. Steady state
/// allocates nothing: `add` allocates all memory of a run. If anything is in flight, shut down the
/// transport before destroying the executor.
class Executor {
 public:
  /// `streams` (null without a device) and `team` (null without helpers) outlive the executor.
  explicit Executor(Transport& transport, DeviceStreams* streams = nullptr,
                    ReduceTeam* team = nullptr);
  ~Executor();

  /// `pause` is called repeatedly during allocation, which can take seconds.
  void on_pause(Pause pause) { pause_ = std::move(pause); }

  /// Prepares a bucket. Errors: KoloError(kResources) if arena or device cannot hold it;
  /// UsageError for a device bucket without a device.
  void add(Schedule schedule, Binding binding);

  /// Replaces one of a bucket's inputs, between iterations.
  void set_input(BucketId bucket, std::size_t index, const Event* event);

  /// Address of element 0 of a bucket with memory, in host or device memory.
  std::byte* bucket_memory(BucketId bucket);
  /// Event after the last iteration of a device bucket that `take_enqueued` returned.
  const Event& finished_event(BucketId bucket) const;

  /// Bytes sent to other nodes in the bucket's last or current iteration. For payloads, only used
  /// bytes count.
  std::size_t network_bytes(BucketId bucket) const;

  /// Frees the memory that `add` allocated for a bucket that is not running; its number may then be
  /// added again. An abandoned bucket may be removed only if it has no messages, since these may
  /// still access its memory.
  void remove(BucketId bucket);

  /// Starts the bucket's next iteration; it must not be running.
  void start(BucketId bucket, std::uint64_t iteration);

  /// Forgets the current iteration of a host bucket, which is never started again. Its memory
  /// stays, because peers and messages may still access it.
  void abandon(BucketId bucket);
  /// Whether a peer still writes to tensors of the bucket, whose iteration was given up. Updated by
  /// `poll`.
  bool is_revoking(BucketId bucket) const;

  /// Makes all possible progress; kernels write at most about 1 MiB per bucket and thread, so that
  /// polling continues between them. Returns whether there was progress.
  bool poll();

  /// Buckets finished since the last call; valid until the next `poll`.
  std::span<const BucketId> take_finished();
  /// Device buckets whose last step was enqueued since the last call: a stream that waits for their
  /// `finished_event` sees their result. Valid until the next `poll`.
  std::span<const BucketId> take_enqueued();

  /// Whether the device has work that must be polled.
  bool device_busy() const;
  /// The first failure of the device, if any.
  std::optional<Error> device_failure() const {
    return streams_ != nullptr ? streams_->failure() : std::nullopt;
  }

  bool busy() const { return !active_.empty() || !revoking_.empty(); }

  /// The steps that the first running bucket waits for ("bucket 'x' iteration 7: recv 0 from rank
  /// 2, ...").
  std::string describe_wait() const;
  /// Appends the ranks that running buckets wait for, possibly repeatedly.
  void append_awaited_peers(std::vector<int>& peers) const;

  /// Whether messages to or from other nodes are in flight.
  bool has_messages_in_flight() const;

  /// Forgets everything in flight. The transport then ignores messages that peers have sent for
  /// current, later and abandoned iterations. The memory is no longer accessed once the transport
  /// has been shut down, the device aborted, and `poll_revoking` has returned true.
  void cancel();

  /// Continues the part of `poll` that remains after `cancel`. Returns true once no peer writes to
  /// tensors of abandoned iterations.
  bool poll_revoking();
  /// Stops waiting for such peers after they have been stopped, and warns.
  void forget_writers();

  /// After `cancel`: cancels the remaining messages. Returns whether the memory is no longer
  /// accessed.
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
  DeviceStreams* streams_;
  ReduceTeam* team_;
  const std::size_t threads_;  // number of threads that compute
  Pause pause_;
  std::vector<std::unique_ptr<Run>> runs_;  // by bucket
  std::vector<Run*> active_;                // in order of start
  std::vector<Run*> revoking_;              // given up, while peers still write to their tensors
  std::vector<BucketId> finished_, taken_finished_;
  std::vector<BucketId> enqueued_, taken_enqueued_;
  std::vector<KernelPiece> pieces_;  // being computed
  std::vector<StepId> computed_;     // steps that complete with `pieces_`
};

}  // namespace kolo
