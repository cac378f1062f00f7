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

/// The kinds of calls by which a system sums the gradients of a model.
enum class Calls {
  kBuckets,  ///< Kolo's buckets. Each starts when all its gradients are ready.
  kFlat,     ///< One call at the end, on gradients that are adjacent in memory.
  kPacked,   ///< One call at the end, on a buffer to and from which gradients are copied.
  kEach,     ///< One call for each gradient, as soon as it is computed.
};

constexpr std::string_view to_string(Calls calls) {
  constexpr std::array<std::string_view, 4> kNames = {"buckets", "flat", "packed", "each"};
  return kNames[static_cast<std::size_t>(calls)];
}

/// The float32 gradients of one model, summed by a system under measurement.
class OverlapSystem {
 public:
  virtual ~OverlapSystem() = default;
  virtual std::string name() const = 0;
  virtual std::string algorithm() const = 0;
  virtual Calls calls() const = 0;
  /// Returns the largest size of a bucket in bytes, if the system makes buckets.
  virtual std::optional<std::size_t> fusion_bytes() const { return std::nullopt; }

  /// Marks gradient `index` as computed. Called once per gradient and iteration, in any order.
  virtual void ready(std::size_t index) = 0;
  /// Blocks until gradient `index` is summed and returns true. Returns false if the system cannot
  /// wait for a single gradient. Called between the last `ready` and `finish`.
  virtual bool await(std::size_t /*index*/) { return false; }
  /// Blocks until all gradients are summed.
  virtual void finish() = 0;

  virtual void fill(float value) = 0;
  /// Returns the number of elements on this rank that differ from `value`.
  virtual std::uint64_t count_other_than(float value) = 0;
};

/// Makes the system that runs Kolo. `counts`: number of elements of each gradient. `runtime`
/// outlives the system. Collective.
std::unique_ptr<OverlapSystem> make_kolo_overlap(Runtime& runtime,
                                                 const std::vector<std::size_t>& counts, Home home);

/// Makes a system that sums gradients by blocking calls of `peer`, each with the fastest algorithm
/// for its size. `calls` is not kBuckets. `peer` outlives the result. Collective.
std::unique_ptr<OverlapSystem> make_blocking_overlap(Runtime& runtime, CollectiveSystem& peer,
                                                     const std::vector<std::size_t>& counts,
                                                     Calls calls);

/// Returns the number of elements of each gradient of a transformer, in the order of the forward
/// pass. Each layer has the weight matrices of attention and of the feed-forward network, 12 width²
/// elements in total, with biases and norms.
std::vector<std::size_t> transformer_gradients(std::size_t layers, std::size_t width);

struct OverlapOptions {
  std::vector<std::size_t> counts;  ///< Number of elements of each gradient.
  double compute_ms = 20;           ///< Computing time of the backward pass, divided by elements.
  double update_ms = 0;  ///< Computing time of the update that follows, first gradient first.
  int iterations = 30;
  int warmup = 3;
};

/// The results of one system. Each time is the median of the slowest rank's times.
struct OverlapRow {
  std::string system;
  std::string algorithm;
  Calls calls = Calls::kBuckets;
  std::optional<std::size_t> fusion_bytes;
  double compute_us = 0;        ///< Time of backward pass and update without communication.
  double communication_us = 0;  ///< Time to sum all gradients, without computation.
  double iteration_us = 0;      ///< Time of computation and communication together.
  std::vector<double> iterations_us = {};  ///< The same by iteration, of the slowest rank.
  double exposed_us = 0;                   ///< iteration_us - compute_us.
  double first_us = 0;        ///< Time for which the update waits for the first layer's sums.
  double hidden_percent = 0;  ///< Share of the communication that computation hides. Negative if
                              ///< both together take longer than one after the other.
  std::uint64_t wrong = 0;    ///< Number of wrong elements, over all ranks.
};

/// Measures all systems alternately. Gradients become ready from last to first, each when its part
/// of the backward pass is computed. A gradient is updated as soon as it is summed if the system
/// can wait for a single gradient, otherwise when all are summed. Each iteration times computation
/// alone, communication alone, and both together; all ranks begin each of the three together. If
/// ranks share cores, communication that takes processor time from computation counts as exposed.
/// Collective; all ranks return equal rows.
std::vector<OverlapRow> measure_overlap(Runtime& runtime,
                                        const std::vector<std::unique_ptr<OverlapSystem>>& systems,
                                        const OverlapOptions& options);

}  // namespace kolo::bench
