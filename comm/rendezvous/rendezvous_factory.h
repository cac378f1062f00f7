#pragma once

#include <chrono>
#include <memory>

#include "comm/rendezvous/environment.h"
#include "comm/rendezvous/rendezvous.h"

namespace kolo {

/// The rendezvous of the job that this process was started in, see `detect_launch`: through MPI
/// under mpirun, or PMIx in builds without MPI, else over TCP under torchrun or Slurm, else of one
/// rank. Blocks until all ranks have joined.
///
/// Threads: the main thread. Keep the result no longer than start-up lasts: MPI_Finalize, called by
///          its destructor, waits for all ranks.
/// Errors:  those of `detect_launch`, `MpiRendezvous`, `PmixRendezvous` and `make_tcp_rendezvous`;
///          KoloError(kConfig) if MPI sees another job than the launcher announced.
std::unique_ptr<Rendezvous> rendezvous_from_environment(
    std::chrono::milliseconds timeout, const Environment& environment = process_environment());

}  // namespace kolo
