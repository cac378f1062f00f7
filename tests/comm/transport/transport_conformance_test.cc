#include <chrono>
#include <future>

#include "comm/transport/routed_transport.h"
#include "tests/comm/transport/transport_jobs.h"
#include "tests/conformance/transport_conformance_tests.h"

namespace kolo::test {
namespace {

/// Makes a job with shared memory inside nodes and queues between them.
TransportJob routed_job(const ProcessGrid& grid, const TransportLimits& limits) {
  auto network = std::make_shared<InProcessHub>(grid, limits);
  const std::string job_id = unique_job_id();
  TransportJob job = make_together(grid, [&](int rank) {
    return std::make_unique<RoutedTransport>(shm_rank(grid, limits, job_id, rank),
                                             network->transport(rank));
  });
  job.shared = network;
  return job;
}

INSTANTIATE_TEST_SUITE_P(
    Transports, TransportConformance,
    testing::Values(TransportCase{"in_process", {1}, true, in_process_job},
                    TransportCase{"in_process_nodes", {2, 1}, true, in_process_job},
                    TransportCase{"in_process_nodes", {2, 1}, false, in_process_job},
                    TransportCase{"shm_alone", {1}, true, shm_job},
                    TransportCase{"shm", {2}, true, shm_job},
                    TransportCase{"shm", {3}, false, shm_job},
                    TransportCase{"routed", {2, 2}, true, routed_job},
                    TransportCase{"routed", {2, 1}, false, routed_job}),
    case_name);

// A rank that commits many GB must not block its other threads, one of which answers peers.
TEST(ShmTransport, CommitsWhileAnotherThreadCommits) {
  constexpr std::size_t kPart = std::size_t{16} << 20;
  const auto transport =
      shm_rank(ProcessGrid::with_node_sizes({1}),
               {.arena_bytes = 3 * kPart, .flags_per_peer = 1, .counters = 1}, unique_job_id(), 0);
  std::future<void> other;
  std::future_status status = std::future_status::deferred;
  transport->commit(0, 2 * kPart, [&] {
    if (other.valid()) return;
    other = std::async(std::launch::async, [&] { transport->commit(2 * kPart, kPart, {}); });
    status = other.wait_for(std::chrono::seconds(60));
  });
  EXPECT_EQ(status, std::future_status::ready);
}

}  // namespace
}  // namespace kolo::test
