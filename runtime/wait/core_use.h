#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace kolo {

/// The cores that a rank may use and the threads that compute on them.
struct CoreUse {
  std::vector<int> cores;   ///< Numbers of the cores, ascending.
  std::size_t threads = 1;  ///< Threads that compute, including the one that waits.
};

/// Number of threads of a rank that drive its engine while its other threads compute.
inline constexpr std::size_t kEngineThreads = 1;

/// Returns the cores in this process's affinity mask, and as its threads OMP_NUM_THREADS, else
/// KOLO_THREADS, else 1.
CoreUse own_core_use();

/// Returns the CPU quota, in cores, that control groups give this process and its siblings; without
/// a quota, the number of cores of the machine. `root` is the directory that contains proc and sys.
std::size_t granted_cores(const std::filesystem::path& root = "/");

/// Converts to the text that ranks exchange, and back; malformed text becomes one thread without
/// cores.
std::string to_text(const CoreUse& use);
CoreUse core_use_of(const std::string& text);

/// Returns whether all threads of `ranks` can run at the same time, so that a polling thread does
/// not take the core of another thread. `granted` limits the cores of all ranks together; `extra`
/// threads are added to each rank.
bool fit(std::span<const CoreUse> ranks, std::size_t granted, std::size_t extra = 0);

/// The ranks that share cores with a rank, including itself.
struct CoreSharers {
  std::vector<CoreUse> node;     ///< Ranks of the node, under one quota.
  std::vector<CoreUse> machine;  ///< Ranks of all nodes on this machine, e.g. its containers.
};

/// Returns whether the cores suffice for all ranks of the machine, and the quota `granted` for the
/// ranks of the node.
bool fit(const CoreSharers& sharers, std::size_t granted, std::size_t extra = 0);

/// Returns the number of threads that can help each rank with reductions, on cores that neither
/// compute threads nor the engine's threads need. `granted` is the quota of the node.
int spare_reduce_threads(const CoreSharers& sharers, std::size_t granted);

}  // namespace kolo
