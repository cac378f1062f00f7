#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "comm/algorithms/algorithm.h"
#include "comm/schedule/schedule.h"

namespace kolo {

/// An algorithm for a goal.
struct Choice {
  const Algorithm* algorithm = nullptr;
  Price price;
  std::string reason = {};  ///< "ring: 5.2 ms predicted; tree 8.1 ms", or "ring: asked for".
};

/// Those that "auto" considers, cheapest first, without a reason. Threads: pure; any.
std::vector<Choice> considered(const CompileContext& context);

/// The algorithm that the options name for the goal, if one serves it; otherwise the cheapest of
/// those that "auto" considers. Threads: pure; any.
/// Errors: UsageError if none serves the goal with this layout; as `Algorithm::check`.
Choice choose(const CompileContext& context);

/// One of several places for the tensors of a collective.
struct Placing {
  Goal goal;
  BucketLayout layout;
  double extra_us = 0;  ///< Beside the algorithm: copies.
};
/// The index of the one that an algorithm which the options name serves first, or of the cheapest
/// one. Placings that nothing serves do not count. Before: something serves the last one.
std::size_t choose_placing(std::span<const Placing> placings, const ProcessGrid& grid,
                           const CompileOptions& options);

/// The time in which mirrors of tensors in device memory are copied from it and to it,
/// microseconds: the most bytes that one rank gives come down, the most that one gets go up.
double mirror_us(const Goal& goal, DType dtype, int ranks, const LinkCost& staging);

/// The size of the buckets that gradients of `bytes` in all should travel in, a power of two: small
/// ones leave little to do after the last gradient, large ones cost less in all. The sum of both is
/// least. Errors: as `choose`.
std::size_t cheapest_bucket_bytes(std::size_t bytes, MemoryKind memory, const ProcessGrid& grid,
                                  const CompileOptions& options);

/// The schedule of `rank` for a goal, by an algorithm that serves it.
///
/// Before: all arguments but `rank` are equal on all ranks; the goal has as many elements as the
///         layout. After running it on all ranks, each receiver of a part holds its result.
/// Threads: pure; any.
/// Errors: UsageError if the count of a device bucket is no multiple of `device_padding`.
Schedule compile(int rank, const Algorithm& algorithm, const CompileContext& context);

/// The same by the algorithm that `choose` gives. Errors: as `choose`.
Schedule compile(int rank, const Goal& goal, const BucketLayout& layout, const ProcessGrid& grid,
                 const CompileOptions& options);

}  // namespace kolo
