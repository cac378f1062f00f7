#pragma once

#include <signal.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/api/kolo.h"
#include "trainer/checkpoint/job_identity.h"
#include "trainer/checkpoint/run_folder.h"
#include "trainer/checkpoint/saved_state.h"
#include "trainer/checkpoint/state_visitor.h"

namespace kolo::trainer {

/// Saves the training state while training continues: every `Options::every` steps, and when
/// training ends or is asked to stop. A checkpoint passes through four phases:
///
///     begin    each rank copies its part, and its writer thread stores the copy in a file
///     agree    all ranks find that all files are durable
///     then     rank 0's thread writes the manifest, renames the folder, removes old checkpoints
///     agree    all ranks find that the checkpoint is complete
///
/// The training threads of the ranks agree: after each step they start an exchange of reports,
/// which runs during the next step. So writer threads make no collective calls, and no rank polls
/// the file system, which may show other nodes' files late. If a rank cannot write its part, all
/// ranks drop the checkpoint, that rank logs why, and training continues.
///
/// Collective: all ranks call the same functions in the same order. Threads: one.
/// Errors:  those of the runtime.
class Checkpointer {
 public:
  struct Options {
    std::filesystem::path folder;  ///< Folder of the run, on a file system that all nodes share.
    std::size_t keep = 3;          ///< Number of newest checkpoints to keep, at least 1.
    JobIdentity job;
    std::size_t every = 0;  ///< Steps between checkpoints; 0: one at the end or when asked to stop.
    /// Returns whether this rank is asked to stop; called once per step.
    std::function<bool()> wants_stop = [] { return false; };
  };

  /// Creates the folder, keeps other jobs out of it, and removes unfinished checkpoints of earlier
  /// ones. `state` outlives this object. Errors: KoloError(kIo) on every rank if rank 0 cannot
  /// write to the folder or another job has it.
  Checkpointer(Runtime& runtime, Options options, Stateful& state);
  /// Blocks until this rank's writer thread has ended.
  ~Checkpointer() = default;

  /// Call before the first step if `folder` has the checkpoint of `step`, from which the run
  /// resumes: it is not saved again.
  void resumed_at(std::uint64_t step) { completed_step_ = step; }

  /// Call after each step, with the held-out loss if it has just been evaluated. Begins a
  /// checkpoint if one is due, unless another one is still being written. Returns true on all ranks
  /// at the same step if training must stop; then call `save_last`.
  bool after_step(std::uint64_t step, std::optional<double> eval_loss);

  /// Blocks until the checkpoint in progress has completed or failed, and ends the exchange.
  /// Returns as `after_step`.
  bool finish();

  /// Saves the state after the last step unless it is saved already, and blocks until it is
  /// durable. Returns whether it is.
  bool save_last(std::uint64_t step, std::optional<double> eval_loss);

 private:
  enum class Phase : std::uint64_t { kIdle, kWriting, kWritten, kFailed, kPublishing, kPublished };

  /// A rank's report to the other ranks after a step, sent as 64-bit integers.
  struct Report {
    std::uint64_t step = 0;
    Phase phase = Phase::kIdle;
    std::uint64_t wants_stop = 0;  ///< 1 if this rank is asked to stop, otherwise 0.
    FileSum sum = {};
  };
  static constexpr std::size_t kWords = sizeof(Report) / sizeof(std::uint64_t);

  /// Whether a checkpoint is in progress; equal on all ranks.
  bool is_busy() const { return step_.has_value(); }
  /// Copies this rank's part of the state and starts the writer thread. Before: not busy.
  void begin(std::uint64_t step, std::optional<double> eval_loss);
  /// Reads the reports of the last exchange and starts the next one. Returns true, on all ranks at
  /// the same call, once any rank has set `wants_stop`.
  bool agree(bool wants_stop);
  void begin_exchange(bool wants_stop);
  /// Returns whether any rank is asked to stop.
  bool end_exchange();
  void follow(const std::vector<Report>& reports);
  /// Checks this rank's writer thread without waiting for it.
  void look_after_thread();
  void publish(const std::vector<Report>& reports);
  void end(bool is_complete);

  Runtime& runtime_;
  const RunFolder folder_;
  RunLock lock_;  // of rank 0
  const std::size_t keep_;
  const JobIdentity job_;
  const std::size_t every_;
  const std::function<bool()> wants_stop_;
  Stateful& state_;
  // Reports are sent after one step and read after the next, so no rank waits for the exchange.
  Report mine_;
  std::vector<Report> all_;         // reports by rank
  std::optional<Ticket> exchange_;  // empty if none is in flight; destroyed before its buffers

  std::optional<std::uint64_t> step_;  // step of the checkpoint in progress
  std::optional<double> eval_loss_;
  std::optional<std::uint64_t> completed_step_;  // step of the newest complete checkpoint
  std::optional<std::uint64_t> lost_step_;       // step of the last failure, which is logged once
  bool is_last_ = false;                         // whether training has ended
  Phase phase_ = Phase::kIdle;
  FileSum sum_;
  Snapshot snapshot_;
  std::future<FileSum> thread_;  // writer thread; declared last because it reads the members above
};

struct ResumeOptions {
  std::filesystem::path run;  ///< Folder of the run; may be empty unless `choice` is "auto".
  std::string choice = "no";  ///< "auto", "no", or the path of a checkpoint.
  JobIdentity job;
};

/// Restores `state` from a checkpoint and returns the checkpoint's path, or empty if training
/// starts anew. For "auto", it restores the newest checkpoint that all ranks can read, and logs why
/// it skips newer ones. Collective; all ranks restore the same checkpoint.
///
/// Errors: KoloError(kConfig) naming the option, if the checkpoint belongs to another job, if it
///         has per-rank state and the number of ranks has changed, or if `choice` is "no" and the
///         run has checkpoints; KoloError(kData) if the checkpoint cannot be read or lacks a part
///         of the state; those of the runtime.
std::optional<std::filesystem::path> resume(Runtime& runtime, const ResumeOptions& options,
                                            Stateful& state);

/// Turns SIGTERM and SIGUSR1, by which schedulers announce the end of a job, into a flag that
/// training reads after each step. The signals are blocked, and `has_come` takes them from the
/// process's queue; there is no signal handler. Repeated signals change nothing, because scheduler
/// and launcher may both send one.
///
/// Before:  created before any long-lived thread starts, because threads inherit the signal mask.
/// Threads: only the thread that created it.
class StopSignals {
 public:
  StopSignals();
  /// Discards pending signals and restores the signal mask.
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// Whether a signal has been received so far. Never blocks.
  bool has_come();

 private:
  sigset_t signals_;
  sigset_t mask_before_;
  bool has_come_ = false;
};

}  // namespace kolo::trainer
