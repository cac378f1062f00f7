#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "comm/algorithms/algorithm.h"
#include "comm/schedule/schedule.h"
#include "comm/schedule/schedule_builder.h"

namespace kolo {

/// The algorithm chosen for a spec.
struct Choice {
  const Algorithm* algorithm = nullptr;
  Price price;
  /// Explains the choice: "ring: 5.2 ms predicted; flat 8.1 ms", "ring: asked for" or "ring: tuned;
  /// 5.2 ms predicted".
  std::string reason = {};
  std::size_t tuned_chunk_bytes = 0;  ///< 0: `Algorithm::chunk_bytes` decides.
  std::size_t chunk_bytes(const CompileContext& context) const {
    return tuned_chunk_bytes > 0 ? tuned_chunk_bytes : algorithm->chunk_bytes(context);
  }
};

/// The algorithms that "auto" considers, cheapest first, with empty reasons. Threads: any; pure.
std::vector<Choice> considered(const CompileContext& context);

/// Chooses the first algorithm named in the options that serves the spec, or else, of those that
/// "auto" considers, the tuned one or the cheapest one. Threads: any; pure.
/// Errors: UsageError if no algorithm serves the spec with this layout; those of `Algorithm::check`
///         for a named algorithm.
Choice choose(const CompileContext& context);

/// A candidate for the memory in which a collective runs, such as the tensors or a bounce buffer.
struct Placing {
  CollectiveSpec spec;
  BucketLayout layout;
  double extra_us = 0;  ///< Microseconds of copies, in addition to the algorithm's time.
};
/// Returns the index of the first placing that an algorithm named in the options serves, or else of
/// the cheapest placing. Placings that no algorithm serves are ignored. Before: some algorithm
/// serves the last placing.
std::size_t choose_placing(std::span<const Placing> placings, const ProcessGrid& grid,
                           const CompileOptions& options);

/// Microseconds to copy tensors from device memory to bounce buffers, and results back. The rank
/// that contributes most decides the time of the first copy, the rank that receives most the time
/// of the second.
double bounce_us(const CollectiveSpec& spec, DType dtype, int ranks, const LinkCost& staging);

/// The best bucket size in bytes, a power of two, for gradients of `bytes` in total. Small buckets
/// leave little work after the last gradient; large buckets cost less in total. The result
/// minimises the sum of the two times, unless the options have a size tuned for `placement`.
/// Errors: those of `choose`.
std::size_t cheapest_bucket_bytes(std::size_t bytes, MemoryKind memory, const ProcessGrid& grid,
                                  const CompileOptions& options,
                                  Placement placement = Placement::kInPlace);

/// How messages of a bucket reach the network. Its ring of staging memory needs at most twice the
/// bytes of the bucket. Threads: pure; any.
DeviceMessages device_messages(const BucketLayout& layout, const CompileOptions& options);

/// Compiles the schedule of `rank` for the spec of `context`. `algorithm` must serve the spec.
///
/// Before: all arguments but `rank` are equal on all ranks; the spec has as many elements as the
///         layout. After all ranks have run their schedules, receivers hold the results.
/// Threads: pure; any.
/// Errors: UsageError if the count of a device bucket is not a multiple of `device_padding`.
Schedule compile(int rank, const Algorithm& algorithm, const CompileContext& context);

/// Compiles the schedule of `rank` with the algorithm of `choose`. Errors: those of `choose`.
Schedule compile(int rank, const CollectiveSpec& spec, const BucketLayout& layout,
                 const ProcessGrid& grid, const CompileOptions& options);

}  // namespace kolo
