#pragma once

#include <cstddef>
#include <cstdint>
#include <future>
#include <optional>
#include <span>
#include <vector>

#include "runtime/api/kolo.h"
#include "trainer/checkpoint/agreement_round.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/run_folder.h"
#include "trainer/checkpoint/snapshot.h"

namespace kolo::trainer {

/// Saves the state of training while training goes on. A checkpoint takes this way:
///
///     begin    each rank copies its part, and a thread of it writes that to the device
///     agree    all ranks find that all files are durable
///     then     a thread of rank 0 writes the manifest, renames the folder, removes old checkpoints
///     agree    all ranks find that the checkpoint is complete
///
/// The ranks agree from the training thread, after each step, by words that were exchanged during
/// the step: threads that write make no collective calls, and nobody polls the file system, whose
/// view of other nodes' files may be late. A part that cannot be written ends the checkpoint on all
/// ranks, with a line in the log of the rank that failed; training goes on.
///
/// Collective: all ranks call the same functions equally often. Threads: one.
/// Errors:  those of the runtime.
class Checkpointer {
 public:
  struct Options {
    std::filesystem::path folder;  ///< Of the run; shared by all nodes.
    std::size_t keep = 3;          ///< Newest checkpoints that stay, at least 1.
    JobIdentity job;
  };

  /// Creates the folder and clears it of what earlier jobs left unfinished.
  /// Errors: KoloError(kIo) on every rank if rank 0 cannot write there.
  Checkpointer(Runtime& runtime, Options options);
  /// Waits for the writing threads of this rank.
  ~Checkpointer() = default;

  /// True while a checkpoint is under way; the same on all ranks.
  bool is_busy() const { return step_.has_value(); }
  /// The step of the newest checkpoint that was completed here.
  std::optional<std::uint64_t> completed_step() const { return completed_step_; }

  /// Begins a checkpoint after `step` steps. Before: not busy. After: the state may change.
  /// Cost: a copy of this rank's part.
  void begin(std::uint64_t step, std::optional<double> eval_loss, Stateful& state);

  /// After each step. Returns true, on all ranks at the same call, once any rank has said
  /// `wants_stop`.
  bool agree(bool wants_stop);

  /// Waits until the checkpoint under way has ended, one way or the other, and ends the exchange.
  void finish();

 private:
  enum class Phase : std::uint64_t { kIdle, kWriting, kWritten, kFailed, kPublishing, kPublished };

  /// What a rank tells the others.
  struct Report {
    std::uint64_t step = 0;
    Phase phase = Phase::kIdle;
    bool wants_stop = false;
    FileSum sum = {};
  };

  static std::vector<Report> reports_from(std::span<const std::uint64_t> words);
  void exchange(bool wants_stop);
  void follow(const std::vector<Report>& reports);
  /// Looks after this rank's thread, without waiting for it.
  void look_after_thread();
  void publish(const std::vector<Report>& reports);
  void end(bool is_complete);

  Runtime& runtime_;
  const RunFolder folder_;
  const std::size_t keep_;
  const JobIdentity job_;
  AgreementRound round_;

  std::optional<std::uint64_t> step_;  // of the checkpoint under way
  std::optional<double> eval_loss_;
  std::optional<std::uint64_t> completed_step_;
  Phase phase_ = Phase::kIdle;
  FileSum sum_;
  Snapshot snapshot_;
  std::future<FileSum> thread_;  // last, since it reads the members before it
};

}  // namespace kolo::trainer
