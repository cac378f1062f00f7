#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/options/compression_stats.h"

namespace kolo {

/// The plan of a gradient set; it holds for all iterations until the set is planned again.
struct PlanSummary {
  std::size_t gradients = 0;   ///< Number of gradients.
  std::size_t buckets = 0;     ///< Number of buckets.
  std::size_t bytes = 0;       ///< Gradient bytes in the caller's dtypes.
  std::size_t wire_bytes = 0;  ///< Bytes that this rank sends to other nodes per iteration.
  /// Limit of a bucket, as given or chosen: in device memory if all gradients are there.
  std::size_t fusion_bytes = 0;
  std::string algorithm = {};    ///< Algorithm of the largest bucket.
  std::string compression = {};  ///< Number of gradients per compression spec; empty: all dense.
  std::string reason = {};       ///< Reason for the algorithm, for a bucket in device memory.
  /// Each decision about a group whose spec left something open ("auto", or a route of top-k), and
  /// its reason. "auto" is dense until 20 iterations are measured.
  std::vector<CompressionDecision> compression_decisions = {};
  std::uint64_t hash = 0;  ///< Equal on all ranks.
};

}  // namespace kolo
