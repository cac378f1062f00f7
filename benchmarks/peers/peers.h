#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/collective/collective_system.h"
#include "comm/device/device.h"
#include "runtime/api/kolo.h"

/// The systems that are measured for comparison with Kolo. All functions are collective, and the
/// runtime must outlive the systems.
namespace kolo::bench {

/// Connects the named systems. It also keeps MPI alive if MPI is among them. Create this object
/// before the runtime, because the component that starts MPI also finalizes it.
class Peers {
 public:
  /// Errors: KoloError(kConfig) if this build does not have a named system, or if a system does not
  /// support the verb.
  explicit Peers(std::vector<std::string> names, Verb verb = Verb::kAllReduce);

  /// Keeps MPI alive if MPI started this job, so that runtimes can follow one another.
  void keep_launcher();

  /// Connects the systems, in the order of their names. It warns of "limit" inside a node and of
  /// "streaming" between nodes, and leaves them out. Collective; this object and the runtime
  /// must outlive the systems. Errors: KoloError(kConfig) for NCCL on a runtime without a device;
  /// the errors of the systems.
  std::vector<std::unique_ptr<CollectiveSystem>> connect(Runtime& runtime) const;

  /// Returns the names of the systems in this build that support the verb: "limit", "streaming"
  /// and, if Kolo was built with them, "mpi", "gloo" and "nccl".
  static std::vector<std::string> known(Verb verb = Verb::kAllReduce);

 private:
  void use_mpi();

  std::vector<std::string> names_;
  std::shared_ptr<void> mpi_;
};

/// Starts MPI before the runtime does, so that MPI is finalized only when the last copy of the
/// returned pointer is destroyed. Threads: the main thread.
std::shared_ptr<void> start_mpi();

/// Makes a system of MPI's collectives, sends and receives on all ranks. Its runs are the
/// algorithms of MPI that may be the fastest. Before: `start_mpi`, whose result outlives the
/// system. Errors: `prepare` throws KoloError(kConfig) for sums of 16-bit floats, which MPI does
/// not support.
std::unique_ptr<CollectiveSystem> make_mpi_system();

/// Makes a system of Gloo's collectives, sends and receives on all ranks over TCP; inside a node
/// they use the loopback interface. Its runs are algorithms of Gloo that may be the fastest. If an
/// algorithm works only in place, the time includes copying the contribution. Ranks exchange
/// addresses through Kolo. Errors: `prepare` throws KoloError(kConfig) for sums of 16-bit floats,
/// and for averages.
std::unique_ptr<CollectiveSystem> make_gloo_system(Runtime& runtime);

/// Makes a system of NCCL's collectives, sends and receives on all ranks in device memory. It
/// creates its own NCCL communicator on `device`, which outlives the system.
/// Errors: the errors of `require_nccl`; `prepare` throws UsageError for host memory, and for
/// dtypes and operations that NCCL does not support.
std::unique_ptr<CollectiveSystem> make_nccl_system(Runtime& runtime, Device& device);

/// The smallest size, in bytes, for which the limit and the reference are measured. Below it,
/// waking threads takes most of the time.
inline constexpr std::size_t kLeastBoundBytes = std::size_t{64} << 10;

/// Makes a system that measures a lower bound for all-reduces between N nodes, if links and not
/// processors limit the time. Every node sends 2(N-1)/N of the bytes to the next node over plain
/// TCP and receives as many at the same time, because links are full duplex. A node must send and
/// receive at least these bytes if all links have the same rate. One rank of each node sends, and
/// nothing is summed.
/// Errors: KoloError(kConfig) on a single node; KoloError(kIo) if a neighbour cannot be reached;
/// the errors of `network_address`.
std::unique_ptr<CollectiveSystem> make_wire_limit(Runtime& runtime);

/// Makes a reference for collectives inside a node. It performs only the copies and additions that
/// no rank can avoid, without flags, between buffers that all ranks have mapped. With P ranks and S
/// bytes:
///
/// - all-reduce: each rank reads S/P bytes of each contribution, adds them and writes P results;
/// - reduce and reduce-scatter: each rank does the same, but writes one result;
/// - all others: each rank copies the data that it receives; out of place, also its own part.
///
/// This is no lower bound if ranks could share the copies: here the root of a gather makes all of
/// them.
///
/// If there are more ranks than cores, only as many ranks as cores do the work of all, because time
/// slicing would only add scheduling time. Errors: KoloError(kConfig) between nodes; `prepare`
/// throws UsageError for device memory, and KoloError(kIo) if a rank may not open the memory of a
/// peer.
std::unique_ptr<CollectiveSystem> make_streaming_reference(Runtime& runtime);

}  // namespace kolo::bench
