#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "benchmarks/collective/collective_system.h"
#include "runtime/api/kolo.h"

namespace kolo::bench {

/// The calls that sum the gradients of a model.
enum class Calls {
  kBuckets,  ///< Kolo's buckets, each started when it is ready.
  kFlat,     ///< One call at the end, on adjacent gradients.
  kPacked,   ///< One call at the end, on a buffer to and from which gradients are copied.
  kEach,     ///< One call per gradient, when it is computed.
};

constexpr std::string_view to_string(Calls calls) {
  constexpr std::array<std::string_view, 4> kNames = {"buckets", "flat", "packed", "each"};
  return kNames[static_cast<std::size_t>(calls)];
}

/// The float32 gradients of one model, on a system under measurement.
class OverlapSystem {
 public:
  virtual ~OverlapSystem() = default;
  virtual std::string name() const = 0;
  virtual std::string algorithm() const = 0;
  virtual Calls calls() const = 0;
  /// Largest bucket, if the system makes buckets.
  virtual std::optional<std::size_t> fusion_bytes() const { return std::nullopt; }

  /// Marks gradient `index` as computed: in any order, once per iteration.
  virtual void ready(std::size_t index) = 0;
  /// Blocks until gradient `index` is summed; returns false if the system cannot wait for a single
  /// gradient. Called between the last `ready` and `finish`.
  virtual bool await(std::size_t /*index*/) { return false; }
  /// Blocks until all gradients are summed.
  virtual void finish() = 0;

  virtual void fill(float value) = 0;
  /// Number of elements that differ from `value`, on this rank.
  virtual std::uint64_t count_other_than(float value) = 0;
};

/// `counts` holds the elements of each gradient. `runtime` outlives the system. Collective.
std::unique_ptr<OverlapSystem> make_kolo_overlap(Runtime& runtime,
                                                 const std::vector<std::size_t>& counts, Home home);

/// A system with blocking calls only, used by `calls` (not kBuckets), each with its fastest
/// variant. `peer` outlives the result. Collective.
std::unique_ptr<OverlapSystem> make_blocking_overlap(Runtime& runtime, CollectiveSystem& peer,
                                                     const std::vector<std::size_t>& counts,
                                                     Calls calls);

/// Elements of each gradient of a transformer, in the order of the forward pass: per layer the
/// matrices of attention and of the feed-forward network, 12 width² in total, with biases and
/// norms.
std::vector<std::size_t> transformer_gradients(std::size_t layers, std::size_t width);

struct OverlapOptions {
  std::vector<std::size_t> counts;  ///< Elements of each gradient.
  double compute_ms = 20;  ///< Computing time of the backward pass, distributed by elements.
  double update_ms = 0;    ///< Computing time of the subsequent update, from the first gradient to
                           ///< the last.
  int iterations = 30;
  int warmup = 3;
};

/// Results of one system. Times are medians of the slowest rank.
struct OverlapRow {
  std::string system;
  std::string algorithm;
  Calls calls = Calls::kBuckets;
  std::optional<std::size_t> fusion_bytes;
  double compute_us = 0;        ///< Backward pass and update without communication.
  double communication_us = 0;  ///< All gradients, without computation.
  double iteration_us = 0;      ///< Computation and communication together.
  double exposed_us = 0;        ///< iteration_us - compute_us.
  double first_us = 0;          ///< From the end of the backward pass to the first layer's sums.
  double hidden_percent =
      0;  ///< Hidden share of communication; below 0 if both together cost more than apart.
  std::uint64_t wrong = 0;  ///< Number of elements, over all ranks.
};

/// Runs iterations on all systems alternately: gradients become ready from last to first, each when
/// its part of the backward pass is computed. Each gradient is updated as soon as it is summed if
/// the system can wait for one, otherwise when all are summed. Computation alone, communication
/// alone and both together alternate too; all ranks start each together. If ranks share cores,
/// communication that takes time from computation counts as exposed. Collective; rows are equal on
/// all ranks.
std::vector<OverlapRow> measure_overlap(Runtime& runtime,
                                        const std::vector<std::unique_ptr<OverlapSystem>>& systems,
                                        const OverlapOptions& options);

}  // namespace kolo::bench
