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

/// Saves the training state while training goes on: every `every` steps, when the job is asked to
/// stop, and at the end of training. A checkpoint passes through four phases:
///
///     begin    each rank copies its part, and a thread of it writes that to the device
///     agree    all ranks find that all files are durable
///     then     a thread of rank 0 writes the manifest, renames the folder, removes old checkpoints
///     agree    all ranks find that the checkpoint is complete
///
/// The ranks agree from the training thread after each step, by messages exchanged during the step:
/// writer threads make no collective calls, and no rank polls the file system, which may show other
/// nodes' files late. A part that cannot be written ends the checkpoint on all ranks, with a line
/// in the log of the rank that failed; training goes on.
///
/// Collective: all ranks call the same functions equally often. Threads: one.
/// Errors:  those of the runtime.
class Checkpointer {
 public:
  struct Options {
    std::filesystem::path folder;  ///< Folder of the run, shared by all nodes.
    std::size_t keep = 3;          ///< Newest checkpoints to keep, at least 1.
    JobIdentity job;
    std::size_t every = 0;  ///< Steps between; 0: only when asked to stop, and at the end.
    /// Step of the checkpoint in `folder` that the run resumes from; it is not saved again.
    std::optional<std::uint64_t> resumed_step = std::nullopt;
    /// Whether this rank is asked to stop; called once per step.
    std::function<bool()> wants_stop = [] { return false; };
  };

  /// Creates the folder and removes what earlier jobs left unfinished. `state` outlives it.
  /// Errors: KoloError(kIo) on every rank if rank 0 cannot write there.
  Checkpointer(Runtime& runtime, Options options, Stateful& state);
  /// Waits for the writer thread of this rank.
  ~Checkpointer() = default;

  /// Call after each step, with the held-out loss if it has just been evaluated. Returns true on
  /// all ranks if training is to stop now; then call `save_last`. Skips a checkpoint that is due
  /// while another one is still being written.
  bool after_step(std::uint64_t step, std::optional<double> eval_loss);

  /// Saves the state after the last step, unless that is already saved, and waits until it is
  /// durable. Returns whether it is.
  bool save_last(std::uint64_t step, std::optional<double> eval_loss);

 private:
  enum class Phase : std::uint64_t { kIdle, kWriting, kWritten, kFailed, kPublishing, kPublished };

  /// A rank's message to the others, exchanged as 64-bit words.
  struct Report {
    std::uint64_t step = 0;
    Phase phase = Phase::kIdle;
    std::uint64_t wants_stop = 0;  ///< 1 if this rank is asked to stop.
    FileSum sum = {};
  };
  static constexpr std::size_t kWords = sizeof(Report) / sizeof(std::uint64_t);

  /// True while a checkpoint is under way; equal on all ranks.
  bool is_busy() const { return step_.has_value(); }
  /// Begins a checkpoint after `step` steps. Before: not busy. After: the state may change.
  /// Cost: a copy of this rank's part.
  void begin(std::uint64_t step, std::optional<double> eval_loss);
  /// Called after each step. Returns true, on all ranks at the same call, once any rank has set
  /// `wants_stop`.
  bool agree(bool wants_stop);
  /// Waits until the checkpoint under way has completed or failed, and ends the exchange.
  void finish();
  void begin_exchange(bool wants_stop);
  void end_exchange();
  void follow(const std::vector<Report>& reports);
  /// Checks this rank's writer thread without waiting for it.
  void look_after_thread();
  void publish(const std::vector<Report>& reports);
  void end(bool is_complete);

  Runtime& runtime_;
  const RunFolder folder_;
  const std::size_t keep_;
  const JobIdentity job_;
  const std::size_t every_;
  const std::optional<std::uint64_t> resumed_step_;
  const std::function<bool()> wants_stop_;
  Stateful& state_;
  // Sent after one step and read after the next, so that no rank waits for the exchange.
  Report mine_;
  std::vector<Report> all_;         // by rank
  std::optional<Ticket> exchange_;  // empty when none is under way; ends before its buffers do

  std::optional<std::uint64_t> step_;  // of the checkpoint under way
  std::optional<double> eval_loss_;
  std::optional<std::uint64_t> completed_step_;  // of the newest checkpoint made here
  Phase phase_ = Phase::kIdle;
  FileSum sum_;
  Snapshot snapshot_;
  std::future<FileSum> thread_;  // last, since it reads the members before it
};

struct ResumeOptions {
  std::filesystem::path run;  ///< Folder of the run; may be empty unless `choice` is "auto".
  std::string choice = "no";  ///< "auto", "no", or the path of a checkpoint.
  JobIdentity job;
};

/// Restores `state` from a checkpoint and returns its path; empty if training starts anew. "auto"
/// takes the newest checkpoint of the run that every rank finds complete, and logs why it skips
/// others. Collective; all ranks take the same checkpoint.
///
/// Errors: KoloError(kConfig), naming the option, if the checkpoint belongs to another job or has
///         per-rank state for another number of ranks, and for "no" if the run has checkpoints;
///         KoloError(kData) if the checkpoint at a path cannot be read; those of the runtime.
std::optional<std::filesystem::path> resume(Runtime& runtime, const ResumeOptions& options,
                                            Stateful& state);

/// Turns SIGTERM and SIGUSR1, by which schedulers announce the end of a job, into a flag that
/// training reads after each step. There is no handler: the signals are blocked, and taken from the
/// process's queue. Repeated signals change nothing: scheduler and launcher may both send one.
///
/// Before:  created before any thread that lives as long as training; threads inherit the signal
///          mask.
/// Threads: the one that created it.
class StopSignals {
 public:
  StopSignals();
  /// Discards signals that are pending; later ones act as they did before.
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// True from the first signal on. Never blocks.
  bool has_come();

 private:
  sigset_t signals_;
  sigset_t mask_before_;
  bool has_come_ = false;
};

}  // namespace kolo::trainer
