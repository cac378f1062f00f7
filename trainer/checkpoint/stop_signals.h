#pragma once

#include <signal.h>

namespace kolo::trainer {

/// Turns SIGTERM and SIGUSR1, by which schedulers announce the end of a job, into a question that
/// training asks after each step. There is no handler: the signals are blocked, and taken from the
/// queue of the process. More of them change nothing: schedulers and launchers may both send one.
///
/// Before:  made before any thread that lives as long as training; threads inherit what is blocked.
/// Threads: the one that made it.
class StopSignals {
 public:
  StopSignals();
  /// Signals that came act no more; later ones act as they did before.
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
