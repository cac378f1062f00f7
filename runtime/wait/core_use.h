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

/// The threads of a rank that drive its engine while its other threads compute.
inline constexpr std::size_t kEngineThreads = 1;

/// The cores and threads of this process: its affinity, and OMP_NUM_THREADS threads, else
/// KOLO_THREADS, else one.
CoreUse own_core_use();

/// The quota, in cores, that control groups give this process and its siblings; all cores of the
/// machine without a quota. `root`: the directory of proc and sys.
std::size_t granted_cores(const std::filesystem::path& root = "/");

/// Converts to the text that ranks exchange, and back; malformed text counts as one thread without
/// cores.
std::string to_text(const CoreUse& use);
CoreUse core_use_of(const std::string& text);

/// Whether all threads of these ranks can run at the same time, so that a polling thread takes its
/// core from no other. `granted` limits the cores of all ranks together; `extra` threads are added
/// to each rank.
bool fit(std::span<const CoreUse> ranks, std::size_t granted, std::size_t extra = 0);

/// The ranks that share cores with a rank, including itself.
struct CoreSharers {
  std::vector<CoreUse> node;     ///< Ranks of the node, under one quota.
  std::vector<CoreUse> machine;  ///< Ranks of all nodes on this machine, e.g. its containers.
};

/// Whether both sets fit, and the node's ranks also its quota.
bool fit(const CoreSharers& sharers, std::size_t granted, std::size_t extra = 0);

/// Number of threads that can help each rank with reductions, on cores that neither compute threads
/// nor the engine's threads need. `granted` is the quota of the node.
int spare_reduce_threads(const CoreSharers& sharers, std::size_t granted);

}  // namespace kolo
