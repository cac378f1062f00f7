#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "comm/algorithms/algorithm.h"
#include "comm/schedule/schedule.h"

namespace kolo {

/// An algorithm for a spec.
struct Choice {
  const Algorithm* algorithm = nullptr;
  Price price;
  std::string reason = {};  ///< "ring: 5.2 ms predicted; tree 8.1 ms", or "ring: asked for".
};

/// The algorithms that "auto" considers, cheapest first, without reasons. Threads: any; pure.
std::vector<Choice> considered(const CompileContext& context);

/// The algorithm that the options name for the spec, if one serves it; otherwise the cheapest that
/// "auto" considers. Threads: any; pure.
/// Errors: UsageError if no algorithm serves the spec with this layout; as `Algorithm::check`.
Choice choose(const CompileContext& context);

/// One of several places where the tensors of a collective may live.
struct Placing {
  CollectiveSpec spec;
  BucketLayout layout;
  double extra_us = 0;  ///< Cost of copies, in addition to the algorithm's time.
};
/// Index of the first placing that an algorithm named in the options serves, or else of the
/// cheapest one. Placings that no algorithm serves are ignored. Before: some algorithm serves the
/// last placing.
std::size_t choose_placing(std::span<const Placing> placings, const ProcessGrid& grid,
                           const CompileOptions& options);

/// Time to copy tensors from device memory to their host bounce buffers and results back, in
/// microseconds: the most bytes that one rank contributes are copied down, the most that one rank
/// receives are copied up.
double bounce_us(const CollectiveSpec& spec, DType dtype, int ranks, const LinkCost& staging);

/// The best bucket size for gradients of `bytes` in total, a power of two. Small buckets leave
/// little work after the last gradient; large ones cost less in total. Minimises the sum of both.
/// Errors: as `choose`.
std::size_t cheapest_bucket_bytes(std::size_t bytes, MemoryKind memory, const ProcessGrid& grid,
                                  const CompileOptions& options);

/// The schedule of `rank` for a spec, by an algorithm that serves it.
///
/// Before: all arguments but `rank` are equal on all ranks; the spec has as many elements as the
///         layout. After running it on all ranks, each receiver of a part holds its result.
/// Threads: pure; any.
/// Errors: UsageError if the count of a device bucket is no multiple of `device_padding`.
Schedule compile(int rank, const Algorithm& algorithm, const CompileContext& context);

/// As above, with the algorithm that `choose` returns. Errors: as `choose`.
Schedule compile(int rank, const CollectiveSpec& spec, const BucketLayout& layout,
                 const ProcessGrid& grid, const CompileOptions& options);

}  // namespace kolo
