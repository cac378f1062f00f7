#include "comm/base/error.h"
#include "comm/rendezvous/launch.h"
#include "comm/rendezvous/pmix_rendezvous.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/rendezvous/tcp_rendezvous.h"

#if KOLO_WITH_MPI
#include "comm/rendezvous/mpi_rendezvous.h"
#endif

namespace kolo {
namespace {

#if KOLO_WITH_MPI
std::unique_ptr<Rendezvous> mpi_rendezvous(const Launch& launch,
                                           std::chrono::milliseconds timeout) {
  auto rendezvous = std::make_unique<MpiRendezvous>(timeout);
  const int rank = rendezvous->rank();
  const int size = rendezvous->size();
  if (launch.rank.value_or(rank) == rank && launch.size.value_or(size) == size) return rendezvous;
  throw KoloError(Error{.code = ErrorCode::kConfig,
                        .rank = launch.rank.value_or(-1),
                        .what = "MPI and the launcher disagree: MPI sees rank " +
                                std::to_string(rank) + " of " + std::to_string(size) +
                                "; use the mpirun of the MPI that Kolo was built with"});
}
#else
std::unique_ptr<Rendezvous> mpi_rendezvous(const Launch&, std::chrono::milliseconds) {
  return nullptr;  // unreachable: detect_launch has thrown
}
#endif

}  // namespace

std::unique_ptr<Rendezvous> rendezvous_from_environment(std::chrono::milliseconds timeout,
                                                        const Environment& environment) {
  const Launch launch = detect_launch(environment, KOLO_WITH_MPI != 0, timeout);
  switch (launch.kind) {
    case Launch::Kind::kMpi:
      return mpi_rendezvous(launch, timeout);
    case Launch::Kind::kPmix:
      return std::make_unique<PmixRendezvous>(timeout);
    case Launch::Kind::kTcp:
      return make_tcp_rendezvous(launch.tcp);
    case Launch::Kind::kSingle:
      break;
  }
  return std::make_unique<SingleRendezvous>();
}

}  // namespace kolo
