#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/overlap/overlap_system.h"
#include "runtime/api/kolo.h"

namespace kolo::bench {

/// Elements of each gradient of a transformer, in the order of the forward pass: per layer the
/// matrices of attention and of the feed-forward network, 12 width² in all, with biases and norms.
std::vector<std::size_t> transformer_gradients(std::size_t layers, std::size_t width);

struct OverlapOptions {
  std::vector<std::size_t> counts;  ///< Elements of each gradient.
  double compute_ms = 20;  ///< Computing time of the backward pass, distributed by elements.
  double update_ms = 0;    ///< The same of the update, which follows, first gradient to last.
  int iterations = 30;
  int warmup = 3;
};

/// One system. Times are medians of the slowest rank.
struct OverlapRow {
  std::string system;
  std::string algorithm;
  Calls calls = Calls::kBuckets;
  std::optional<std::size_t> fusion_bytes;
  double compute_us = 0;        ///< Backward pass and update without communication.
  double communication_us = 0;  ///< All gradients, without computation.
  double iteration_us = 0;      ///< Both.
  double exposed_us = 0;        ///< iteration - compute.
  double first_us = 0;          ///< From the end of the backward pass to the first layer's sums.
  double hidden_percent =
      0;  ///< Hidden share of communication; below 0 if both together cost more than apart.
  std::uint64_t wrong = 0;  ///< Elements, over all ranks.
};

/// Runs iterations on all systems alternately: gradients become ready last to first, each when
/// its part of the backward pass is computed. Then each is updated as soon as it is summed, where
/// the system can wait for one, or else when all are. Computation alone, communication alone and
/// both alternate too; all ranks start each together. Where ranks share cores, communication that
/// takes time from the computation counts as exposed. Collective; rows are equal on all ranks.
std::vector<OverlapRow> measure_overlap(Runtime& runtime,
                                        const std::vector<std::unique_ptr<OverlapSystem>>& systems,
                                        const OverlapOptions& options);

}  // namespace kolo::bench
