#pragma once

#include <chrono>
#include <cstddef>
#include <limits>
#include <optional>
#include <set>
#include <string>

#include "comm/base/dtype.h"

namespace kolo {

/// A size that the cost model chooses; as text "auto".
inline constexpr std::size_t kAutoBytes = std::numeric_limits<std::size_t>::max();

/// A number of threads that is derived from the free cores of the node; as text "auto".
inline constexpr int kAutoThreads = -1;

/// All options of the runtime. Each field has one name in three places: `--fusion-bytes`,
/// KOLO_FUSION_BYTES and `options.fusion_bytes`.
struct Options {
  /// Largest bucket of gradients, in bytes; 0 sends each gradient alone. kAutoBytes chooses the
  /// size with the least predicted time for all gradients of a set.
  std::size_t fusion_bytes = kAutoBytes;
  /// "auto", or names of algorithms, separated by semicolons, each for all collectives or for one:
  /// "ring;broadcast:direct"; see `AlgorithmRequest`. If no named algorithm serves a collective on
  /// its nodes and in its memory, "auto" chooses.
  std::string algorithm = "auto";
  /// Makes the bits of sums depend on the shape of the job only, not on measurements: link costs
  /// are not measured (`calibrate`); between nodes `algorithm` "auto" means "direct" or, if nodes
  /// have several ranks, "hierarchical:direct,direct"; compression "auto" is an error.
  bool reproducible = false;
  /// Link costs for the cost model, as comma-separated key=value, for example
  /// "network_latency_us=2.5,network_bytes_per_us=12000"; keys left out keep their defaults.
  std::string link_costs = {};
  /// "on" measures link costs at start, for up to 200 ms; "off" uses the defaults.
  std::string calibrate = "on";
  /// Path of the file that keeps measured costs for jobs of this shape, for 24 hours, and the
  /// choices of `kolo-bench tune`, which count where options are "auto". Empty means no file.
  /// "auto" means a file below $XDG_CACHE_HOME or ~/.cache, for costs only of jobs across nodes,
  /// because only there can costs change the bits of sums.
  std::string calibration_file = "auto";
  /// Device of gradients of kind kDevice: "cpu" (there are none), "cuda" (the GPU whose index is
  /// the local rank) or "cuda:INDEX".
  std::string device = "cpu";
  /// `fusion_bytes` for device memory.
  std::size_t device_fusion_bytes = kAutoBytes;
  /// `chunk_bytes` for device memory.
  std::size_t device_chunk_bytes = std::size_t{32} << 20;
  /// Dtype on the wire for gradient sets; empty means each gradient's own dtype.
  std::optional<DType> wire_dtype = std::nullopt;
  /// Compression of gradients: one spec for all, such as "none", "fp16", "topk(0.01)" or "auto", or
  /// rules by name, "PATTERN=SPEC,...", of which the first that matches counts; see
  /// `CompressionSpec`.
  std::string compression = "none";
  /// Largest chunk of a bucket, in bytes; the chunks of a bucket are pipelined. kAutoBytes chooses
  /// the size with the least predicted time for the bucket.
  std::size_t chunk_bytes = kAutoBytes;
  /// Most bytes of a bucket in flight between nodes, but at least two chunks; 0 means no limit.
  std::size_t network_window = std::size_t{1} << 20;
  /// Address space of a rank's arena. Memory is committed when a plan needs it.
  std::size_t arena_bytes = std::size_t{16} << 30;
  /// Address space of the arenas of all groups that a rank is in, and of the memory that
  /// `Runtime::allocate` returns.
  std::size_t group_arena_bytes = std::size_t{16} << 30;
  /// Path for the timeline: the buckets and waits of each iteration are written to PATH.RANK, as
  /// trace events for Perfetto. Empty means no timeline.
  std::string timeline = {};
  /// Verifies the schedules of all ranks before a bucket runs for the first time; use it for new
  /// algorithms and for bug reports. Time and memory grow with the square of the number of steps.
  bool verify_schedules = false;
  /// Identity of this rank's node, in place of host name and boot id, to simulate several nodes.
  std::string node_id = {};
  /// Path of UCX's library libucp.so, which jobs across nodes load at start. Empty means the
  /// system's library.
  std::string ucx_library = {};
  /// Path of NCCL's library libnccl.so.2, which jobs with GPUs load at start. Empty means that
  /// which the process has loaded, or else the system's library.
  std::string nccl_library = {};
  /// Time limit of start-up (rendezvous and connections).
  std::chrono::milliseconds connect_timeout{60'000};
  /// Delay before Kolo checks which ranks have not submitted a tensor.
  std::chrono::milliseconds mismatch_after{1'000};
  /// A peer counts as lost if other ranks wait for it and it is silent for this long.
  std::chrono::milliseconds peer_timeout{8'000};
  /// If ranks have waited this long for a tensor that other ranks have not submitted, rank 0 logs a
  /// table of such tensors, the missing ranks, and the last acts of these ranks. If a call blocks a
  /// rank's engine, the rank logs that after this time or half of `peer_timeout`, whichever is
  /// shorter. 0 disables both.
  std::chrono::milliseconds stall_warn{60'000};
  /// If ranks have waited this long for a tensor that other ranks have not submitted, all ranks get
  /// an error. A call that blocks the engine for this long is an error, too, unless peers lose the
  /// rank earlier, after `peer_timeout`. 0 means nine tenths of `operation_timeout` (down to two
  /// thirds if it is short), so that this error comes before a timeout.
  std::chrono::milliseconds stall_abort{0};
  /// Time limit of every wait while all peers are alive; 0 means no limit.
  std::chrono::milliseconds operation_timeout{600'000};
  /// Time that a waiting thread polls before it sleeps; 0 means it sleeps at once. -1 means 400
  /// microseconds if the compute threads of the node's ranks (OMP_NUM_THREADS each) fit the cores
  /// that they may use; otherwise 100 microseconds, with a yield after each poll.
  std::chrono::microseconds spin{-1};
  /// Threads that help the waiting thread with reductions, casts and copies in host memory. Their
  /// number does not change the result. kAutoThreads means up to 3, on cores that are not needed by
  /// the compute threads of the node's ranks (OMP_NUM_THREADS each) and one more thread per rank.
  int reduce_threads = kAutoThreads;

  /// Names of the fields that a flag, a file or a C program has set: no variable replaces these,
  /// also where they have their defaults. `set_option` adds to them.
  std::set<std::string> given = {};

#if __cplusplus >= 202002L
  friend bool operator==(const Options&, const Options&) = default;
#endif
};

/// Returns `options` after KOLO_* variables have replaced the fields that have their defaults and
/// are not `given`.
/// Errors: UsageError for an unknown choice, KoloError(kConfig) for a value that is malformed or
///         out of range. Both name the field or variable, the value and the allowed values.
Options options_from_environment(Options options);

/// Logs a warning for every unknown KOLO_* variable, suggesting the nearest known name.
void warn_about_unknown_variables();

}  // namespace kolo
