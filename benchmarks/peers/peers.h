#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/collective/collective_system.h"
#include "comm/device/device.h"
#include "runtime/api/kolo.h"

/// The systems that can be measured beside Kolo. Functions are collective; what they make does not
/// outlive the runtime.
namespace kolo::bench {

/// The systems of this build that can be measured beside Kolo, alive until it is destroyed. Made
/// before the runtime, because whoever starts MPI also finalizes it.
class Peers {
 public:
  /// Errors: KoloError(kConfig) for a name that this build does not know, or not for this verb.
  explicit Peers(std::vector<std::string> names, Verb verb = Verb::kAllReduce);

  /// Keeps MPI alive if this job was started by it, so that more than one runtime can be made.
  void keep_launcher();

  /// Connects the systems, in the order of their names. Collective; they do not outlive this and
  /// the runtime. Errors: KoloError(kConfig) for NCCL on a runtime without a device; those of the
  ///                  systems.
  std::vector<std::unique_ptr<CollectiveSystem>> connect(Runtime& runtime) const;

  /// Names of the systems of this build that have the collective: "limit", "streaming" and, if it
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

/// MPI's collectives, sends and receives on all ranks, by the best of MPI's algorithms. Before:
/// `start_mpi`, whose result outlives it. Errors: prepare throws KoloError(kConfig) for sums of
/// 16-bit floats, which MPI has not.
std::unique_ptr<CollectiveSystem> make_mpi_system();

/// Gloo's collectives, sends and receives over TCP on all ranks (inside a node, TCP over the
/// loopback), by the best of its algorithms. Algorithms that work in place only get the
/// contribution copied first, within the time. Ranks exchange addresses through Kolo.
/// Errors: prepare throws KoloError(kConfig) for sums of 16-bit floats, and for averages.
std::unique_ptr<CollectiveSystem> make_gloo_system(Runtime& runtime);

/// NCCL's collectives, sends and receives in device memory on all ranks, as its users call them: a
/// communicator of its own on `device`, which outlives the system.
/// Errors: those of `require_nccl`; prepare throws UsageError for host memory, and for dtypes and
///         operations that NCCL has not.
std::unique_ptr<CollectiveSystem> make_nccl_system(Runtime& runtime, Device& device);

/// The smallest size at which the limit and the reference are measured; below it, wake-ups take the
/// time rather than bytes.
inline constexpr std::size_t kLeastBoundBytes = std::size_t{64} << 10;

/// A lower bound between N nodes, where links and not processors take the time: every node streams
/// 2(N-1)/N of the bytes to the next node over plain TCP and receives as many, at the same time
/// since links are full duplex. That is the least that a node has to send and to receive where all
/// links have the same rate. One rank of each node works, and nothing is added to anything. Errors:
/// KoloError(kConfig) on a single node, where no lower bound can be measured;
///         KoloError(kIo) if a neighbour cannot be reached; those of `network_address`.
std::unique_ptr<CollectiveSystem> make_wire_limit(Runtime& runtime);

/// A reference inside a node: the copies and additions that no rank can avoid, between buffers that
/// all ranks have mapped and those who contribute have written, without flags. With P ranks and S
/// bytes:
///
/// - all-reduce: each rank reads S/P bytes of each contribution, adds them and writes P results;
/// - reduce and reduce-scatter: the same, but it writes one result;
/// - all others: each rank copies what it receives; out of place, its own part, too.
///
/// It is no lower bound where ranks could share the copies: the root of a gather makes all.
///
/// If ranks outnumber the cores, as many ranks as there are cores do the work of all, because time
/// slices would only add the scheduler's time. Errors: KoloError(kConfig) between nodes; prepare
/// throws UsageError for device memory, and the errors of `NodeArenas`.
std::unique_ptr<CollectiveSystem> make_streaming_reference(Runtime& runtime);

}  // namespace kolo::bench
