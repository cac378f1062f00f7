#pragma once

#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>

#include "comm/transport/shm_transport.h"
#include "tests/conformance/transport_conformance.h"
#include "tests/support/in_process_transport.h"

namespace kolo::test {

inline TransportJob in_process_job(const ProcessGrid& grid, const TransportLimits& limits) {
  auto hub = std::make_shared<InProcessHub>(grid, limits);
  TransportJob job{.shared = hub, .ranks = {}};
  for (int rank = 0; rank < grid.world_size(); ++rank) job.ranks.push_back(hub->transport(rank));
  return job;
}

/// Returns a job id that no other test, process or earlier job of this process uses.
inline std::string unique_job_id() {
  static std::atomic<int> jobs{0};
  return "test" + std::to_string(::getpid()) + "." + std::to_string(jobs++);
}

inline std::vector<std::string> sockets_of(const std::string& job_id,
                                           const std::vector<int>& ranks) {
  std::vector<std::string> names;
  for (const int rank : ranks) names.push_back("kolo-" + job_id + "-" + std::to_string(rank));
  return names;
}

inline std::unique_ptr<ShmTransport> shm_rank(const ProcessGrid& grid,
                                              const TransportLimits& limits,
                                              const std::string& job_id, int rank) {
  const std::vector<int> ranks = grid.ranks_of_node(grid.node(rank));
  return std::make_unique<ShmTransport>(ShmTransport::Config{.secret = "a secret of this test",
                                                             .rank = rank,
                                                             .node_ranks = ranks,
                                                             .sockets = sockets_of(job_id, ranks),
                                                             .limits = limits},
                                        grid.world_size());
}

/// Creates all ranks at the same time, each on a thread, because they wait for each other.
template <typename MakeRank>
TransportJob make_together(const ProcessGrid& grid, MakeRank&& make_rank) {
  TransportJob job{.shared = nullptr, .ranks = {}};
  job.ranks.resize(static_cast<std::size_t>(grid.world_size()));
  run_ranks(grid.world_size(), [&](const RankRun& run) {
    job.ranks[static_cast<std::size_t>(run.rank())] = make_rank(run.rank());
  });
  return job;
}

inline TransportJob shm_job(const ProcessGrid& grid, const TransportLimits& limits) {
  const std::string job_id = unique_job_id();
  return make_together(grid, [&](int rank) { return shm_rank(grid, limits, job_id, rank); });
}

}  // namespace kolo::test
