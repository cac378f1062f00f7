#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace kolo {

/// The cores that a rank may use and the threads that compute on them.
struct CoreUse {
  std::vector<int> cores;   ///< Numbers, ascending.
  std::size_t threads = 1;  ///< Threads that compute, including the one that waits.
};

/// The threads that drive a rank's engine while its own threads compute.
inline constexpr std::size_t kEngineThreads = 1;

/// The use of this process: its affinity, and OMP_NUM_THREADS or else KOLO_THREADS threads, or else
/// one.
CoreUse own_core_use();

/// How many cores' worth of time the control groups of this process grant it and its siblings; all
/// cores of the machine if there is no quota. `root`: where proc and sys are.
std::size_t granted_cores(const std::filesystem::path& root = "/");

/// The text that ranks exchange, and back; any other text counts as one thread without cores.
std::string to_text(const CoreUse& use);
CoreUse core_use_of(const std::string& text);

/// Whether all threads of these ranks can run at the same time, so that a thread that polls keeps
/// its core from no other. `granted` limits the cores of all of them together; `extra` is added to
/// the threads of each rank.
bool fit(std::span<const CoreUse> ranks, std::size_t granted, std::size_t extra = 0);

/// The ranks that share cores with one of them, which is among them.
struct CoreSharers {
  std::vector<CoreUse> node;     ///< Under one quota.
  std::vector<CoreUse> machine;  ///< Ranks of all nodes on this machine, e.g. its containers.
};

/// Whether both fit, those of the node also into its quota.
bool fit(const CoreSharers& sharers, std::size_t granted, std::size_t extra = 0);

/// How many threads can help each rank with reductions on cores that neither computing threads nor
/// the engine's threads need. `granted` is the quota of the node.
int spare_reduce_threads(const CoreSharers& sharers, std::size_t granted);

}  // namespace kolo
