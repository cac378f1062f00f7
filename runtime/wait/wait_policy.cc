#include "runtime/wait/wait_policy.h"

namespace kolo {
namespace {

/// Time for which a thread polls without yielding: longer than a small exchange takes when all
/// peers run. Then it yields between polls even if threads fit the cores: the kernel may have put
/// two ranks on one core while another core is free, and moves one of them only while both are
/// runnable. A yield takes 0.3 us if no other thread wants the core.
constexpr std::chrono::microseconds kKeepCore{2};

}  // namespace

WaitPolicy choose_wait_policy(const CoreSharers& sharers, std::size_t granted,
                              std::chrono::microseconds spin, int reduce_threads) {
  const auto helpers = static_cast<std::size_t>(reduce_threads);
  WaitPolicy policy{.spin = kSleepCost};
  if (fit(sharers, granted, helpers)) {
    policy.spin = 4 * kSleepCost;
    policy.keep_core = kKeepCore;
  }
  if (spin.count() >= 0) policy.spin = spin;
  if (fit(sharers, granted, kEngineThreads + helpers)) policy.background_spin = policy.spin;
  return policy;
}

}  // namespace kolo
