#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "comm/rendezvous/rendezvous.h"

namespace kolo {

/// The rendezvous of the ranks of MPI_COMM_WORLD, on a duplicated communicator.
///
/// Starts MPI (FUNNELED) if it is not running; then it finalizes MPI when the process ends with
/// status 0, because a process can start MPI only once. A process that ends with an error skips
/// MPI_Finalize, where it would wait for other ranks: mpirun stops these.
///
/// MPI_Init, MPI_Comm_dup and MPI_Finalize cannot be interrupted. If one of them takes longer than
/// `timeout`, the process ends with an error line and the exit status of kTimeout.
///
/// Threads: the main thread.
/// Errors:  KoloError(kConfig) if MPI has been finalized already, or if its thread level is SINGLE
///          or FUNNELED and another thread is MPI's main thread; KoloError(kTimeout) if an exchange
///          takes longer than `timeout`; KoloError(kPeerLost) if MPI reports a failure;
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
