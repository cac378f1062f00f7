#pragma once

#include <chrono>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>

#include "comm/base/dtype.h"

namespace kolo {

/// A size that follows from what links cost; as text "auto".
inline constexpr std::size_t kAutoBytes = std::numeric_limits<std::size_t>::max();

/// A number of threads that follows from the cores of the node; as text "auto".
inline constexpr int kAutoThreads = -1;

/// Everything a user can set. Each field has one name in three places: `--fusion-bytes`,
/// KOLO_FUSION_BYTES and `options.fusion_bytes`.
struct Options {
  /// Gradients are batched into buckets of at most this many bytes; 0 keeps each gradient alone.
  /// kAutoBytes: whatever size costs least, given all gradients of a set and what links cost.
  std::size_t fusion_bytes = kAutoBytes;
  /// "auto", "flat", "ring", "direct", "halving_doubling", "tree", "hierarchical" or
  /// "hierarchical:LOCAL,CROSS".
  std::string algorithm = "auto";
  /// What links cost, for "auto": comma-separated key=value as `parse_link_costs` reads it, e.g.
  /// "network_latency_us=2.5,network_bytes_per_us=12000"; what is left out keeps its default.
  std::string link_costs = {};
  /// "on": measure at start what links cost, for up to 200 ms; "off": take the defaults.
  std::string calibrate = "on";
  /// Remembers the costs that were measured for jobs of this shape, for 24 hours: a path; empty:
  /// nowhere; "auto": below $XDG_CACHE_HOME or ~/.cache, for jobs across nodes only, because only
  /// there do costs decide the bits of sums.
  std::string calibration_file = "auto";
  /// Where gradients of kind kDevice live: "cpu" (nowhere), "cuda" (the GPU with the number of the
  /// local rank) or "cuda:INDEX".
  std::string device = "cpu";
  /// `algorithm` of device memory: "auto", "native" (one collective of NCCL) or
  /// "hierarchical:native,CROSS".
  std::string device_algorithm = "auto";
  /// `fusion_bytes` of device memory.
  std::size_t device_fusion_bytes = std::size_t{64} << 20;
  /// `chunk_bytes` of device memory.
  std::size_t device_chunk_bytes = std::size_t{32} << 20;
  /// Dtype on the wire for gradient sets; empty means each gradient's own.
  std::optional<DType> wire_dtype = std::nullopt;
  /// How gradients are compressed: a spec for all, e.g. "none", "fp16", "topk(0.01)" or "auto", or
  /// rules by name, "PATTERN=SPEC,...", the first that matches; see `CompressionSpec`.
  std::string compression = "none";
  /// Buckets are cut into chunks of at most this many bytes, which move through the steps in a
  /// pipeline. kAutoBytes: whatever size costs least for the bucket and its algorithm.
  std::size_t chunk_bytes = kAutoBytes;
  /// Bytes of a bucket that are under way between nodes at a time, in at least two chunks; 0: all
  /// of them, in chunks of `chunk_bytes`.
  std::size_t network_window = std::size_t{1} << 20;
  /// Address space of one rank's arena. Memory is committed when a plan needs it.
  std::size_t arena_bytes = std::size_t{16} << 30;
  /// Writes what iterations of gradient sets consist of to PATH.RANK, as trace events for Perfetto.
  std::string timeline = {};
  /// Tells nodes apart instead of boot id and host name, e.g. to play several nodes on one machine.
  std::string node_id = {};
  /// Start-up (rendezvous, connections) fails after this long.
  std::chrono::milliseconds connect_timeout{60'000};
  /// A tensor that some ranks submitted and others cannot any more is reported after this long.
  std::chrono::milliseconds mismatch_after{1'000};
  /// Peers that block progress and give no sign of life for this long are lost.
  std::chrono::milliseconds peer_timeout{10'000};
  /// A wait fails after this long although all peers are alive; 0 means never.
  std::chrono::milliseconds operation_timeout{600'000};
  /// How long a thread that waits polls before it sleeps; 0: it sleeps at once. -1 microsecond: 400
  /// if the compute threads of the node's ranks (OMP_NUM_THREADS each) fit the cores that they may
  /// use, else 100, and then it yields its core after each poll.
  std::chrono::microseconds spin{-1};
  /// Threads that help with reductions, casts and copies in host memory, beside the one that waits;
  /// no bit depends on it. kAutoThreads: up to 3, on cores of the node that are left over by the
  /// compute threads of its ranks (OMP_NUM_THREADS each) and one thread more for each rank.
  int reduce_threads = kAutoThreads;

  friend bool operator==(const Options&, const Options&) = default;
};

/// Returns `options` with every field that still has its default replaced by its KOLO_* variable.
/// Errors: UsageError for an unknown choice, KoloError(kConfig) for a value that is malformed or
///         out of range; both name the field or variable, the value and what is allowed.
Options options_from_environment(Options options);

/// Logs a warning for every KOLO_* variable that nothing reads, with the name that was meant, if
/// one is near.
void warn_about_unknown_variables();

}  // namespace kolo
