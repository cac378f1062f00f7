#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "comm/base/patience.h"

namespace kolo {

/// The cores that a rank may use and the threads that compute on them.
struct CoreUse {
  std::vector<int> cores;   ///< Numbers, ascending.
  std::size_t threads = 1;  ///< That compute, the one that waits among them.
};

/// This process's: its affinity, and OMP_NUM_THREADS or else KOLO_THREADS threads, or else one.
CoreUse own_core_use();

/// How many cores' worth of time this process's control groups grant it and its siblings; what the
/// machine has if there is no quota.
std::size_t granted_cores();

/// As text that ranks exchange, and back; anything else counts as one thread without cores.
std::string to_text(const CoreUse& use);
CoreUse core_use_of(const std::string& text);

/// Whether all threads of the ranks of a node run at the same time, so that nobody waits for a core
/// which a spinning thread keeps. `granted` caps the cores of all of them together; `extra` is
/// added to each rank's threads.
bool fit(std::span<const CoreUse> ranks, std::size_t granted, std::size_t extra = 0);

/// The ranks that share cores with one of them, which is among them.
struct CoreSharers {
  std::vector<CoreUse> node;     ///< Under one quota.
  std::vector<CoreUse> machine;  ///< Of all nodes that its machine is or plays.
};

/// Whether both fit, those of the node on its quota, too.
bool fit(const CoreSharers& sharers, std::size_t granted, std::size_t extra = 0);

/// How many threads can help each rank with reductions on cores that nobody else needs: neither
/// computing threads nor the engine's, one for each rank. `granted` is the quota of the node.
int spare_reduce_threads(const CoreSharers& sharers, std::size_t granted);

/// How long threads look before they sleep. `granted` is the quota of the node; `spin` is what the
/// user wants, if he wants something (not negative); `reduce_threads` help each rank.
SpinBudget spin_budget(const CoreSharers& sharers, std::size_t granted,
                       std::chrono::microseconds spin, int reduce_threads = 0);

}  // namespace kolo
