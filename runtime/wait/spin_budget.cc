#include "runtime/wait/spin_budget.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <thread>

namespace kolo {
namespace {

/// Longer than a small exchange of messages within a machine; a sleep costs about 5 µs.
constexpr std::chrono::microseconds kSpin{100};
/// Longer than a small exchange takes when all peers run; a core given away to nobody is back after
/// 0.3 µs.
constexpr std::chrono::microseconds kKeepsCore{2};
/// What another thread does for one turn of a small exchange, a few times over.
constexpr std::chrono::microseconds kYield{50};
/// So many times as long where sleeps prove short: the trips of a small sum between hosts that
/// share two cores take 40 to 80 µs.
constexpr int kAtMost = 4;

constexpr std::size_t kNoQuota = std::numeric_limits<std::size_t>::max();
/// The thread that drives while a rank computes.
constexpr std::size_t kEngine = 1;
/// Four threads of a rank that has the memory for itself read and write about as fast as memory
/// can.
constexpr std::size_t kMostSpare = 3;

std::size_t compute_threads() {
  const char* text = std::getenv("OMP_NUM_THREADS");
  if (text == nullptr) text = std::getenv("KOLO_THREADS");
  const long threads = text != nullptr ? std::strtol(text, nullptr, 10) : 1;
  return static_cast<std::size_t>(std::max(threads, 1L));
}

/// The quota of one control group, in cores, rounded down but to no less than one.
std::size_t quota_of(const std::filesystem::path& group) {
  std::ifstream file(group / "cpu.max");
  double quota = 0;
  double period = 0;
  if (!(file >> quota >> period) || period <= 0) return kNoQuota;
  return static_cast<std::size_t>(std::max(quota / period, 1.0));
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

std::size_t granted_cores() {
  std::size_t granted = std::max(std::thread::hardware_concurrency(), 1U);
  // "0::/a/b" is the group a/b of the unified hierarchy; each of its parents may have a quota, too.
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (!line.starts_with("0::/")) continue;
    const std::filesystem::path root("/sys/fs/cgroup");
    for (std::filesystem::path path = line.substr(4);; path = path.parent_path()) {
      granted = std::min(granted, quota_of(root / path));
      if (path.empty()) break;
    }
  }
  return granted;
}

std::string to_text(const CoreUse& use) {
  std::string text = std::to_string(use.threads);
  for (int core : use.cores) text += " " + std::to_string(core);
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
  // Whoever may use these cores only must find room on them (Hall's condition, for the sets of
  // cores that ranks have and for all of them).
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
  while (spare < kMostSpare && fit(sharers, granted, kEngine + spare + 1)) ++spare;
  return static_cast<int>(spare);
}

SpinBudget spin_budget(const CoreSharers& sharers, std::size_t granted,
                       std::chrono::microseconds spin, int reduce_threads) {
  const auto helpers = static_cast<std::size_t>(reduce_threads);
  const bool all_fit = fit(sharers, granted, helpers);
  const bool engines_fit = fit(sharers, granted, kEngine + helpers);
  SpinBudget budget{.user = all_fit ? kSpin : kYield,
                    .user_most = {},
                    .engine = {},
                    .helper = {},
                    .keeps_core = all_fit ? kKeepsCore : Duration::zero()};
  budget.user_most = kAtMost * budget.user;
  if (spin.count() >= 0) budget.user = budget.user_most = spin;
  if (engines_fit) budget.engine = budget.helper = budget.user;
  return budget;
}

}  // namespace kolo
