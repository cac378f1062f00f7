#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/collective/collective_system.h"
#include "comm/device/device.h"
#include "runtime/api/kolo.h"

/// Systems that can be measured for comparison with Kolo. The functions are collective; the systems
/// must not outlive the runtime.
namespace kolo::bench {

/// The named systems that Kolo is compared with, and MPI, which this object keeps alive if it is
/// among them. Create it before the runtime, because the component that starts MPI also finalizes
/// it.
class Peers {
 public:
  /// Errors: KoloError(kConfig) for a name that this build does not know, or for a system that does
  /// not have this verb.
  explicit Peers(std::vector<std::string> names, Verb verb = Verb::kAllReduce);

  /// Keeps MPI alive if it started this job, so that more than one runtime can be created.
  void keep_launcher();

  /// Connects the systems, in the order of their names. Collective; they must not outlive this
  /// object and the runtime. Errors: KoloError(kConfig) for NCCL on a runtime without a device;
  /// those of the systems.
  std::vector<std::unique_ptr<CollectiveSystem>> connect(Runtime& runtime) const;

  /// Names of the systems in this build that have the collective: "limit", "streaming" and, if it
  /// was built with them, "mpi", "gloo" and "nccl".
  static std::vector<std::string> known(Verb verb = Verb::kAllReduce);

 private:
  void use_mpi();

  std::vector<std::string> names_;
  std::shared_ptr<void> mpi_;
};

/// Starts MPI before the runtime does, so that it lives until the end of `main`; the last owner
/// finalizes it. Threads: the main thread.
std::shared_ptr<void> start_mpi();

/// MPI's collectives, sends and receives on all ranks, with the best of MPI's algorithms. Before:
/// `start_mpi`, whose result outlives it. Errors: prepare throws KoloError(kConfig) for sums of
/// 16-bit floats, which MPI does not have.
std::unique_ptr<CollectiveSystem> make_mpi_system();

/// Gloo's collectives, sends and receives on all ranks over TCP (inside a node, over the loopback),
/// with the best of its algorithms. For algorithms that only work in place, the time includes
/// copying the contribution. Ranks exchange addresses through Kolo. Errors: prepare throws
/// KoloError(kConfig) for sums of 16-bit floats, and for averages.
std::unique_ptr<CollectiveSystem> make_gloo_system(Runtime& runtime);

/// NCCL's collectives, sends and receives on all ranks in device memory, called as by its users:
/// with its own communicator on `device`, which outlives the system.
/// Errors: those of `require_nccl`; prepare throws UsageError for host memory, and for dtypes and
///         operations that NCCL does not have.
std::unique_ptr<CollectiveSystem> make_nccl_system(Runtime& runtime, Device& device);

/// The smallest size for which the limit and the reference are measured; below it, wake-ups
/// dominate.
inline constexpr std::size_t kLeastBoundBytes = std::size_t{64} << 10;

/// A lower bound between N nodes if links and not processors take the time: every node streams
/// 2(N-1)/N of the bytes to the next node over plain TCP and receives as many, concurrently since
/// links are full duplex. This is the minimum that a node has to send and receive if all links have
/// the same rate. One rank of each node works, and nothing is summed.
/// Errors: KoloError(kConfig) on a single node, where no lower bound can be measured;
///         KoloError(kIo) if a neighbour cannot be reached; those of `network_address`.
std::unique_ptr<CollectiveSystem> make_wire_limit(Runtime& runtime);

/// A reference inside a node: the copies and additions that no rank can avoid, without flags,
/// between buffers that all ranks have mapped and the contributing ranks have written. With P ranks
/// and S bytes:
///
/// - all-reduce: each rank reads S/P bytes of each contribution, adds them and writes P results;
/// - reduce and reduce-scatter: as all-reduce, but it writes one result;
/// - all others: each rank copies the data that it receives; out of place, also its own part.
///
/// It is no lower bound if ranks could share the copies: the root of a gather makes all of them.
///
/// If ranks outnumber the cores, as many ranks as there are cores do the work of all, because time
/// slicing would only add scheduling time. Errors: KoloError(kConfig) between nodes; prepare throws
/// UsageError for device memory, and the errors of `NodeArenas`.
std::unique_ptr<CollectiveSystem> make_streaming_reference(Runtime& runtime);

}  // namespace kolo::bench
