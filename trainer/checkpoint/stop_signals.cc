#include "trainer/checkpoint/stop_signals.h"

#include <ctime>

namespace kolo::trainer {

StopSignals::StopSignals() {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGTERM);
  sigaddset(&signals_, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &signals_, &mask_before_);
}

StopSignals::~StopSignals() {
  has_come();
  pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
}

bool StopSignals::has_come() {
  const timespec no_time{};
  while (sigtimedwait(&signals_, nullptr, &no_time) > 0) has_come_ = true;
  return has_come_;
}

}  // namespace kolo::trainer
