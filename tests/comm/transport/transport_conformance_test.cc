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

}  // namespace
}  // namespace kolo::test
