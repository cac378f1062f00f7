#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
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
  kBuckets,  ///< Kolo's buckets: started when they are ready.
  kFlat,     ///< One call at the end: the gradients are adjacent.
  kPacked,   ///< One call at the end, on a buffer into and out of which they are copied.
  kEach,     ///< One call for each gradient when it is computed.
};

constexpr std::string_view to_string(Calls calls) {
  constexpr std::array<std::string_view, 4> kNames = {"buckets", "flat", "packed", "each"};
  return kNames[static_cast<std::size_t>(calls)];
}

/// The gradients of one model, float32, on a system under measurement.
class OverlapSystem {
 public:
  virtual ~OverlapSystem() = default;
  virtual std::string name() const = 0;
  virtual std::string algorithm() const = 0;
  virtual Calls calls() const = 0;
  /// Largest bucket, if the system makes buckets.
  virtual std::optional<std::size_t> fusion_bytes() const { return std::nullopt; }

  /// Marks gradient `index` as computed: in any order, each once per iteration.
  virtual void ready(std::size_t index) = 0;
  /// Blocks until gradient `index` is summed, if the system can wait for one; returns false if not.
  /// Between the last `ready` and `finish`.
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

/// A system with blocking calls only, by `calls` other than kBuckets, each by its fastest variant.
/// `peer` outlives the result. Collective.
std::unique_ptr<OverlapSystem> make_blocking_overlap(Runtime& runtime, CollectiveSystem& peer,
                                                     const std::vector<std::size_t>& counts,
                                                     Calls calls);

}  // namespace kolo::bench
