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

/// Runs schedules of buckets, many of which may be in flight. Steps whose predecessors are complete
/// start in the order of their schedule, messages and flags before kernels. Buckets advance in the
/// order in which they were started. `poll` runs kernels of host buckets, long ones in parts; with
/// a team, several threads run pieces of ready kernels concurrently. Local steps of device buckets
/// are enqueued on streams (see DeviceStreams) when their predecessors are enqueued or complete.
///
/// Threads: one; the team's threads help within `poll`. Never blocks; `poll` never throws. Steady
/// state allocates nothing: `add` allocates all memory of a run. If anything is in flight, shut
/// down the transport before destroying the executor.
class Executor {
 public:
  /// `streams` (null without a device) and `team` (null without helpers) must outlive the executor.
  explicit Executor(Transport& transport, DeviceStreams* streams = nullptr,
                    ReduceTeam* team = nullptr);
  ~Executor();

  /// Sets a function that `add` calls repeatedly while it allocates memory, which can take seconds.
  void on_pause(Pause pause) { pause_ = std::move(pause); }

  /// Prepares a bucket. Errors: KoloError(kResources) if arena or device memory cannot hold it;
  /// UsageError for a device bucket without a device.
  void add(Schedule schedule, Binding binding);

  /// Replaces entry `index` of the bucket's `Binding::inputs`. Call it between iterations.
  void set_input(BucketId bucket, std::size_t index, const Event* event);

  /// Returns the address of element 0 of the bucket, in host or device memory. Before: the bucket
  /// has memory of its own (see Schedule::has_bucket).
  std::byte* bucket_memory(BucketId bucket);
  /// Returns the event at the end of the device bucket's last iteration; valid once `take_enqueued`
  /// has returned the bucket.
  const Event& finished_event(BucketId bucket) const;

  /// Number of bytes sent to other nodes in the bucket's last or current iteration. A payload
  /// counts with its used bytes only.
  std::size_t network_bytes(BucketId bucket) const;

  /// Frees the memory of a bucket that is not running; the bucket's id may then be added again. An
  /// abandoned bucket may be removed only if its schedule has no messages, because messages may
  /// still access its memory.
  void remove(BucketId bucket);

  /// Starts the bucket's next iteration. Before: the bucket is not running.
  void start(BucketId bucket, std::uint64_t iteration);

  /// Drops the current iteration of a host bucket, which must not be started again. Its memory
  /// stays allocated, because peers and messages may still access it.
  void abandon(BucketId bucket);
  /// Whether a peer still writes to tensors of the bucket after its iteration was abandoned or
  /// cancelled. `poll` updates it.
  bool is_revoking(BucketId bucket) const;

  /// Makes all possible progress without waiting. Kernels write at most about 1 MiB per bucket and
  /// thread, so that messages are polled between them. Returns whether there was progress.
  bool poll();

  /// Returns the buckets whose iteration finished since the last call; valid until the next `poll`.
  std::span<const BucketId> take_finished();
  /// Returns the device buckets whose last step was enqueued since the last call; valid until the
  /// next `poll`. A stream that waits for the bucket's `finished_event` sees its result.
  std::span<const BucketId> take_enqueued();

  /// Whether the device has work that must be polled.
  bool device_busy() const;
  /// The first failure of the device, if any.
  std::optional<Error> device_failure() const {
    return streams_ != nullptr ? streams_->failure() : std::nullopt;
  }

  bool busy() const { return !active_.empty() || !revoking_.empty(); }

  /// Returns the steps that the first running bucket waits for, such as "bucket 'x' iteration 7:
  /// recv 0 from rank 2;".
  std::string describe_wait() const;
  /// Appends the ranks that running buckets wait for; a rank may be appended more than once.
  void append_awaited_peers(std::vector<int>& peers) const;

  /// Whether messages to or from other nodes are in flight.
  bool has_messages_in_flight() const;

  /// Drops all running iterations. Afterwards the transport ignores messages that peers send for
  /// current, later and abandoned iterations. The memory of buckets is no longer accessed once the
  /// transport has been shut down, the device aborted, and `poll_revoking` has returned true.
  void cancel();

  /// The only part of `poll` that is needed after `cancel`. Returns true once no peer writes to
  /// tensors of abandoned or cancelled iterations.
  bool poll_revoking();
  /// Stops waiting for peers that were stopped while they wrote to this rank's tensors, and logs a
  /// warning for each bucket.
  void forget_writers();

  /// Cancels the remaining messages after `cancel`. Returns true once messages no longer access
  /// memory of buckets.
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
  /// Returns the memory that a send or receive of `range` uses.
  std::span<std::byte> memory(Run& run, const Range& range);

  Transport& transport_;
  DeviceStreams* streams_;
  ReduceTeam* team_;
  const std::size_t threads_;  // number of threads that run kernels
  Pause pause_;
  std::vector<std::unique_ptr<Run>> runs_;  // by BucketId
  std::vector<Run*> active_;                // in order of start
  std::vector<Run*> revoking_;              // dropped, while peers may still write to their tensors
  std::vector<BucketId> finished_, taken_finished_;
  std::vector<BucketId> enqueued_, taken_enqueued_;
  std::vector<KernelPiece> pieces_;  // the pieces of the current `compute_next`
  std::vector<StepId> computed_;     // the steps that are complete once `pieces_` are
};

}  // namespace kolo
