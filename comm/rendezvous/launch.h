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

/// The host names in a Slurm host list, in order. Brackets hold comma-separated numbers and ranges,
/// keep leading zeros, and may appear several times in one name.
///
///   "login,n[01-03,7]-ib"  ->  login n01-ib n02-ib n03-ib n7-ib
///
/// Threads: pure; any.
/// Errors:  KoloError(kConfig) naming the list: unbalanced or empty brackets, a range that falls,
///          more than kMaxHosts names.
/// Source:  scontrol(1), "show hostnames".
std::vector<std::string> parse_hostlist(std::string_view list);

inline constexpr std::size_t kMaxHosts = 1U << 17;

/// Looks up one environment variable; empty if it is not set. Tests pass their own function.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

/// The environment of this process. Threads: any, as long as no thread changes the environment.
Environment process_environment();

/// How this process was started, according to its environment.
struct Launch {
  enum class Kind : std::uint8_t { kSingle, kMpi, kPmix, kTcp };
  Kind kind = Kind::kSingle;
  /// For kMpi: rank and size as announced by the launcher, if it did. They reveal an MPI library
  /// that does not match its launcher and starts every rank as a job of its own.
  std::optional<int> rank;
  std::optional<int> size;
  /// For kTcp.
  TcpOptions tcp;
};

/// Reads these variables; the first match is used:
///   OMPI_COMM_WORLD_SIZE; PMI_SIZE, PMI_RANK, PMIX_RANK    MPI
///   RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT             TCP, as torchrun sets them
///   SLURM_PROCID, SLURM_NTASKS and the node list           TCP to the first node of the list
///   PMI_RANK, PMI_SIZE, MASTER_ADDR, MASTER_PORT           TCP, under the mpiexec of another MPI
/// A job of one rank is kSingle under every launcher. In builds without MPI, PMI variables are
/// ignored if another set is complete; then PMIX_NAMESPACE and PMIX_RANK, which mpirun also sets,
/// select PMIx.
///
/// Threads: any; pure apart from reading the environment.
/// Errors:  KoloError(kConfig) naming the variable: missing, malformed, out of range; or started by
///          an MPI launcher without PMIx although `mpi_available` is false.
Launch detect_launch(const Environment& environment, bool mpi_available,
                     std::chrono::milliseconds timeout);

/// The rendezvous of the job in which this process was started, see `detect_launch`: MPI under
/// mpirun (PMIx in builds without MPI), TCP under torchrun or Slurm, otherwise a job of one rank.
/// Blocks until all ranks have joined.
///
/// Threads: the main thread. Keep the result only during start-up: its destructor calls
///          MPI_Finalize, which waits for all ranks.
/// Errors:  those of `detect_launch`, `MpiRendezvous`, `PmixRendezvous` and `make_tcp_rendezvous`;
///          KoloError(kConfig) if MPI sees another job than the launcher announced.
std::unique_ptr<Rendezvous> rendezvous_from_environment(
    std::chrono::milliseconds timeout, const Environment& environment = process_environment());

}  // namespace kolo
