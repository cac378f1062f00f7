#pragma once

#include <cstddef>
#include <memory>

#include "benchmarks/collective/collective_system.h"
#include "comm/device/device.h"
#include "runtime/api/kolo.h"

/// The systems that can be measured beside Kolo. All functions are collective; their results do not
/// outlive the runtime.
namespace kolo::bench {

/// Starts MPI before the runtime does, so that it lives until the end of `main`, and finalizes it
/// in the destructor. Threads: the main thread.
class MpiSession {
 public:
  MpiSession();
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
};

/// MPI's collectives, sends and receives on all ranks, by the best of MPI's algorithms. Before: an
/// `MpiSession` that outlives it. Errors: prepare throws KoloError(kConfig) for sums of 16-bit
/// floats, which MPI has not.
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
