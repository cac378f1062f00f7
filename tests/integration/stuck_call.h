#pragma once

#include <csignal>

namespace kolo::test {

/// From now on SIGUSR1 holds the main thread in whatever call it is, as a library or a system does
/// that does not return, until SIGUSR2. Other threads run on.
inline void hold_main_thread_on_signal() {
  struct sigaction release = {};
  release.sa_handler = [](int) {};
  ::sigaction(SIGUSR2, &release, nullptr);
  struct sigaction hold = {};
  hold.sa_handler = [](int) {
    sigset_t all_but_release;
    ::sigfillset(&all_but_release);
    ::sigdelset(&all_but_release, SIGUSR2);
    ::sigsuspend(&all_but_release);
  };
  hold.sa_flags = SA_RESTART;
  ::sigaddset(&hold.sa_mask, SIGUSR2);
  ::sigaction(SIGUSR1, &hold, nullptr);
}

}  // namespace kolo::test
