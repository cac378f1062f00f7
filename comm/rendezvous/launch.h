#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "comm/rendezvous/environment.h"
#include "comm/rendezvous/tcp_options.h"

namespace kolo {

/// How this process was started, as far as its environment tells.
struct Launch {
  enum class Kind : std::uint8_t { kSingle, kMpi, kPmix, kTcp };
  Kind kind = Kind::kSingle;
  /// For kMpi: what the launcher announced, if it did. An MPI library that does not understand its
  /// launcher starts every rank as a job of its own; these tell.
  std::optional<int> rank;
  std::optional<int> size;
  /// For kTcp.
  TcpOptions tcp;
};

/// Reads, first found first taken:
///   OMPI_COMM_WORLD_SIZE; PMI_SIZE, PMI_RANK, PMIX_RANK    MPI
///   RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT             TCP, as torchrun sets them
///   SLURM_PROCID, SLURM_NTASKS and the node list           TCP to the first node of the list
///   PMI_RANK, PMI_SIZE, MASTER_ADDR, MASTER_PORT           TCP, under the mpiexec of another MPI
/// A job of one rank is kSingle under every launcher that says so. Without MPI, PMI variables are
/// passed over if one of the others is complete; then PMIX_NAMESPACE and PMIX_RANK, which mpirun
/// sets, too, mean PMIx.
///
/// Threads: any; pure apart from reading the environment.
/// Errors:  KoloError(kConfig) naming the variable: missing, malformed, out of range; or started by
///          an MPI launcher without PMIx although `mpi_available` is false.
Launch detect_launch(const Environment& environment, bool mpi_available,
                     std::chrono::milliseconds timeout);

}  // namespace kolo
