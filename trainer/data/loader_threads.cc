#include "trainer/data/loader_threads.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>

namespace kolo::trainer {

LoaderCores find_loader_cores(std::size_t ranks, std::size_t compute_threads) {
  const auto machine = static_cast<std::size_t>(std::max(::sysconf(_SC_NPROCESSORS_CONF), long{1}));
  cpu_set_t own;
  CPU_ZERO(&own);
  const bool is_known = ::sched_getaffinity(0, sizeof own, &own) == 0;
  return {.own = is_known ? static_cast<std::size_t>(CPU_COUNT(&own)) : machine,
          .machine = machine,
          .ranks = ranks,
          .compute_threads = compute_threads};
}

std::size_t spare_loader_threads(const LoaderCores& cores) {
  // A rank that is bound to cores has those; ranks that are not share the machine.
  return std::min(cores.own, cores.machine / cores.ranks) > cores.compute_threads ? 1 : 0;
}

}  // namespace kolo::trainer
