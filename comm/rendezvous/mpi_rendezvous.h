#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "comm/rendezvous/rendezvous.h"

namespace kolo {

/// Rendezvous of the ranks of MPI_COMM_WORLD, on a duplicated communicator.
///
/// Starts MPI (FUNNELED) unless it is running; then it finalizes MPI when the process ends with
/// status 0, since MPI starts only once per process. A process that ends with an error does not
/// wait for the others in MPI_Finalize: mpirun ends them.
///
/// Nothing can interrupt MPI_Init, MPI_Comm_dup and MPI_Finalize. If one of them takes longer than
/// `timeout`, the process ends with an error line and the exit status of kTimeout.
///
/// Threads: the main thread.
/// Errors:  KoloError(kConfig) if MPI has been finalized already, or runs at thread level SINGLE or
///          FUNNELED and this is not its main thread; KoloError(kTimeout) if an exchange takes
///          longer than `timeout`; KoloError(kPeerLost) if MPI reports a failure;
///          KoloError(kResources) if all contributions together exceed 2 GiB.
class MpiRendezvous final : public Rendezvous {
 public:
  explicit MpiRendezvous(std::chrono::milliseconds timeout);
  ~MpiRendezvous() override;

  int rank() const override;
  int size() const override;
  std::vector<std::string> all_gather(const std::string& mine) override;

 private:
  class Communicator;
  std::unique_ptr<Communicator> communicator_;
};

}  // namespace kolo
