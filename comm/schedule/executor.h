#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/schedule/schedule.h"
#include "comm/transport/transport.h"

namespace kolo {

/// Moves elements between the caller's tensors and a staged bucket; see `fusion/`.
/// Threads: the executor's.
class Packer {
 public:
  virtual ~Packer() = default;
  /// Writes elements [offset, offset + count) of the bucket to `bucket`, cast from the tensors.
  virtual void pack(std::size_t offset, std::size_t count, void* bucket) = 0;
  /// Writes elements [offset, offset + count) of the bucket, given at `bucket`, to the tensors.
  virtual void unpack(std::size_t offset, std::size_t count, const void* bucket) = 0;
};

/// Where a schedule runs: fixed for the life of a bucket. All but `name` and `packer` are equal on
/// all ranks.
struct Binding {
  std::string name = {};  ///< For errors and traces.
  BucketId bucket = 0;
  std::uint32_t epoch = 0;
  std::uint32_t first_flag = 0;  ///< The schedule's flags are first_flag .. + flag_count - 1.
  std::size_t arena_offset = 0;  ///< Bytes; where the bucket begins in every rank's arena.
  double scale = 1.0;            ///< Applied by the steps that finish.
  std::shared_ptr<Packer> packer = {};  ///< For staged buckets.
};

/// Runs schedules: the only code with I/O pending. Many buckets may be in flight; steps whose
/// predecessors are complete start in the order of their schedule, messages and flags before
/// kernels.
///
/// Threads: one. Never blocks, never throws from `poll`. Steady state allocates nothing: all memory
/// of a run is made by `add`. Before it is destroyed with anything in flight, the transport is shut
/// down.
class Executor {
 public:
  explicit Executor(Transport& transport);
  ~Executor();

  /// Prepares a bucket. Errors: KoloError(kResources) if the arena cannot hold it.
  void add(Schedule schedule, Binding binding);

  /// Frees what `add` made for a bucket that is not running.
  void remove(BucketId bucket);

  /// Starts the bucket's next iteration; it must not be running.
  void start(BucketId bucket, std::uint64_t iteration);

  /// Moves everything on as far as it goes now, at most one kernel per bucket.
  /// Returns whether anything moved.
  bool poll();

  /// Buckets that finished since the last call; valid until the next `poll`.
  std::span<const BucketId> take_finished();

  bool busy() const { return !active_.empty(); }

  /// What the oldest running bucket waits for: ("bucket 'x' iteration 7: recv 0 from rank 2, ...").
  std::string describe_wait() const;
  /// Ranks that running buckets wait for; may repeat.
  void append_awaited_peers(std::vector<int>& peers) const;

  /// Forgets everything in flight. The transport has been shut down, so nothing touches the memory.
  void cancel();

 private:
  struct Run;

  bool advance(Run& run);
  bool complete_pending(Run& run);
  void complete(Run& run, StepId step);
  void issue(Run& run, StepId step);
  void compute(Run& run, const Step& step);
  std::byte* address(Run& run, const Range& range);

  Transport& transport_;
  std::vector<std::unique_ptr<Run>> runs_;  // by bucket
  std::vector<Run*> active_;                // in order of start
  std::vector<BucketId> finished_, taken_;
};

}  // namespace kolo
