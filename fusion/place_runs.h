#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace kolo {

/// A gradient that has its place in the arena.
struct PlacedGradient {
  std::size_t bytes = 0;
  /// Bytes of the same kind of gradients that become ready before it.
  std::size_t ready_after = 0;

  std::size_t ready_at() const { return ready_after + bytes; }
};

/// Neighbours in the arena, `begin` to before `end`.
struct PlaceRun {
  std::size_t begin = 0;
  std::size_t end = 0;

  friend bool operator==(const PlaceRun&, const PlaceRun&) = default;
};

/// Cuts gradients, in order of their places, into runs that make good buckets. A run has at most
/// `most_bytes`, or one gradient, each at a multiple of kWireAlignment. Neighbours between which
/// more than `most_bytes` of others become ready are cut apart: if places were free, they would not
/// share a bucket either. Runs come in order of their places.
///
/// Where the order of places is that of readiness, they are those of a greedy filling.
/// Threads: pure; any. Cost: linear.
std::vector<PlaceRun> cut_into_runs(std::span<const PlacedGradient> gradients,
                                    std::size_t most_bytes);

}  // namespace kolo
