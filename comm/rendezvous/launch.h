#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/rendezvous/rendezvous.h"
#include "comm/rendezvous/tcp_rendezvous.h"

namespace kolo {

/// Returns the host names in a Slurm host list, in order. Brackets hold comma-separated numbers and
/// ranges, keep leading zeros, and may appear several times in one name.
///
///   "login,n[01-03,7]-ib"  ->  login n01-ib n02-ib n03-ib n7-ib
///
/// Threads: pure; any.
/// Errors:  KoloError(kConfig) that names the list, for unbalanced or empty brackets, a falling
///          range, or more than kMaxHosts names.
/// Source:  scontrol(1), "show hostnames".
std::vector<std::string> parse_hostlist(std::string_view list);

inline constexpr std::size_t kMaxHosts = 1U << 17;

/// Returns the value of an environment variable, if it is set. Tests pass their own function.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

/// Returns the environment of this process. Threads: any, while no thread changes the environment.
Environment process_environment();

/// How this process was started, as detected from its environment.
struct Launch {
  enum class Kind : std::uint8_t { kSingle, kMpi, kPmix, kTcp };
  Kind kind = Kind::kSingle;
  /// For kMpi: rank and size that the launcher announced, if it did. If MPI reports other values,
  /// the MPI library does not match the launcher and treats every rank as a job of one rank.
  std::optional<int> rank;
  std::optional<int> size;
  /// For kTcp only.
  TcpOptions tcp;
};

/// Reads these variables; the first row that matches decides:
///   OMPI_COMM_WORLD_SIZE; PMI_SIZE, PMI_RANK, PMIX_RANK    MPI
///   RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT             TCP, as torchrun sets them
///   SLURM_PROCID, SLURM_STEP_NUM_TASKS and the node list   TCP to the first node of the list
///   PMI_RANK, PMI_SIZE, MASTER_ADDR, MASTER_PORT           TCP, under the mpiexec of another MPI
/// A job of one rank is kSingle under every launcher. Builds without MPI ignore PMI variables if
/// another set is complete; PMIX_NAMESPACE and PMIX_RANK, which mpirun also sets, then select PMIx.
///
/// Threads: any; only reads the environment.
/// Errors:  KoloError(kConfig) that names a variable that is missing, malformed or out of range;
///          KoloError(kConfig) under an MPI launcher without PMIx if `mpi_available` is false.
Launch detect_launch(const Environment& environment, bool mpi_available,
                     std::chrono::milliseconds timeout);

/// Creates the rendezvous for the launcher of this process (see `detect_launch`): MPI under mpirun
/// (PMIx in builds without MPI), TCP under torchrun or Slurm, otherwise a job of one rank. Blocks
/// until all ranks have joined.
///
/// Threads: the main thread. Keep the result only during start-up: its destructor calls
///          MPI_Finalize, which waits for all ranks.
/// Errors:  as `detect_launch`, `MpiRendezvous`, `PmixRendezvous` and `make_tcp_rendezvous`;
///          KoloError(kConfig) if rank or size in MPI differ from those of the launcher.
std::unique_ptr<Rendezvous> rendezvous_from_environment(
    std::chrono::milliseconds timeout, const Environment& environment = process_environment());

}  // namespace kolo
