#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

#include "runtime/api/kolo.h"
#include "trainer/checkpoint/checkpointer.h"
#include "trainer/checkpoint/state_visitor.h"

namespace kolo::trainer {

/// When a run saves its state: every so many steps, when it is asked to stop, and at its end.
///
/// Collective: all ranks call the same functions after the same steps. Threads: one.
/// Errors:  those of `Checkpointer`.
class CheckpointedRun {
 public:
  struct Options {
    Checkpointer::Options checkpoints;
    std::size_t every = 0;  ///< Steps; 0: only when asked to stop, and at the end.
    /// The step of the checkpoint in this folder that the run goes on from; it is not saved again.
    std::optional<std::uint64_t> resumed_step = std::nullopt;
    /// Whether this rank is asked to stop; called once per step.
    std::function<bool()> wants_stop = [] { return false; };
  };

  /// `state` outlives it.
  CheckpointedRun(Runtime& runtime, Options options, Stateful& state);

  /// After a step, with the held-out loss if it has just been evaluated. Returns true on all ranks
  /// if training is to stop now; then call `save_last`. While one checkpoint is still being
  /// written, the next one is left out.
  bool after_step(std::uint64_t step, std::optional<double> eval_loss);

  /// Saves the state after the last step, unless that has been done, and waits until it is durable.
  /// Returns whether it is.
  bool save_last(std::uint64_t step, std::optional<double> eval_loss);

 private:
  Stateful& state_;
  const std::size_t every_;
  const std::function<bool()> wants_stop_;
  const std::optional<std::uint64_t> resumed_step_;
  Checkpointer checkpointer_;
};

}  // namespace kolo::trainer
