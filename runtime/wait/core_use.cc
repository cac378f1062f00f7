#include "runtime/wait/core_use.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <thread>

namespace kolo {
namespace {

constexpr std::size_t kNoQuota = std::numeric_limits<std::size_t>::max();
/// Highest number of helper threads. Four threads of a single rank nearly saturate the memory
/// bandwidth. A documented default: it changes the time of a sum, not its bits.
constexpr std::size_t kMostSpare = 3;

std::size_t compute_threads() {
  const char* text = std::getenv("OMP_NUM_THREADS");
  if (text == nullptr) text = std::getenv("KOLO_THREADS");
  const long threads = text != nullptr ? std::strtol(text, nullptr, 10) : 1;
  return static_cast<std::size_t>(std::max(threads, 1L));
}

/// Returns the quota of one control group, in cores, rounded down to at least one. Version 2 has
/// one file for both numbers; version 1 has two files, and -1 for no quota.
std::size_t quota_of(const std::filesystem::path& group) {
  double quota = 0;
  double period = 0;
  std::ifstream both(group / "cpu.max");
  if (!(both >> quota >> period)) {
    std::ifstream(group / "cpu.cfs_quota_us") >> quota;
    std::ifstream(group / "cpu.cfs_period_us") >> period;
  }
  if (quota <= 0 || period <= 0) return kNoQuota;
  return static_cast<std::size_t>(std::max(quota / period, 1.0));
}

/// Returns the directory of the control-group hierarchy with these controllers, relative to the
/// root; empty if the hierarchy does not limit CPU time. Version 2 lists no controllers.
std::optional<std::filesystem::path> hierarchy_of(const std::string& controllers) {
  const std::filesystem::path mounted("sys/fs/cgroup");
  if (controllers.empty()) return mounted;
  const bool names_cpu = ("," + controllers + ",").find(",cpu,") != std::string::npos;
  return names_cpu ? std::optional(mounted / "cpu") : std::nullopt;
}

}  // namespace

CoreUse own_core_use() {
  CoreUse use{.cores = {}, .threads = compute_threads()};
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) use.cores.push_back(core);
    }
  }
  return use;
}

std::size_t granted_cores(const std::filesystem::path& root) {
  std::size_t granted = std::max(std::thread::hardware_concurrency(), 1U);
  // "0::/a/b" is the group a/b of version 2, "4:cpu,cpuacct:/a/b" that of version 1. Each of its
  // parents may have a quota, too.
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const auto hierarchy = hierarchy_of(line.substr(first + 1, second - first - 1));
    if (!hierarchy) continue;
    const std::filesystem::path name(line.substr(second + 1));
    for (std::filesystem::path path = name.relative_path();; path = path.parent_path()) {
      granted = std::min(granted, quota_of(root / *hierarchy / path));
      if (path.empty()) break;
    }
  }
  return granted;
}

std::string to_text(const CoreUse& use) {
  std::string text = std::to_string(use.threads);
  for (int core : use.cores) text.append(" ").append(std::to_string(core));
  return text;
}

CoreUse core_use_of(const std::string& text) {
  std::istringstream stream(text);
  CoreUse use;
  if (!(stream >> use.threads)) return {};
  for (int core = 0; stream >> core;) use.cores.push_back(core);
  return use;
}

bool fit(std::span<const CoreUse> ranks, std::size_t granted, std::size_t extra) {
  // Ranks that may use only `cores` must fit on `cores`. This is Hall's condition, checked for the
  // core set of each rank and for the union of all.
  const auto fits_on = [&](const std::vector<int>& cores, std::size_t limit) {
    std::size_t threads = 0;
    for (const CoreUse& rank : ranks) {
      if (std::includes(cores.begin(), cores.end(), rank.cores.begin(), rank.cores.end())) {
        threads += rank.threads + extra;
      }
    }
    return threads <= std::min(cores.size(), limit);
  };
  std::vector<int> all;
  for (const CoreUse& rank : ranks) {
    all.insert(all.end(), rank.cores.begin(), rank.cores.end());
    if (!fits_on(rank.cores, granted)) return false;
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return fits_on(all, granted);
}

bool fit(const CoreSharers& sharers, std::size_t granted, std::size_t extra) {
  return fit(sharers.node, granted, extra) && fit(sharers.machine, kNoQuota, extra);
}

int spare_reduce_threads(const CoreSharers& sharers, std::size_t granted) {
  std::size_t spare = 0;
  while (spare < kMostSpare && fit(sharers, granted, kEngineThreads + spare + 1)) ++spare;
  return static_cast<int>(spare);
}

}  // namespace kolo
