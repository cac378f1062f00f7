#include "fusion/place_runs.h"

#include <algorithm>

#include "comm/schedule/bucket_layout.h"

namespace kolo {
namespace {

std::size_t aligned(std::size_t bytes) {
  return (bytes + kWireAlignment - 1) / kWireAlignment * kWireAlignment;
}

/// Bytes of others that become ready between two gradients.
std::size_t between(const PlacedGradient& a, const PlacedGradient& b) {
  const auto& [first, second] =
      std::minmax(a, b, [](const auto& x, const auto& y) { return x.ready_after < y.ready_after; });
  return second.ready_after - std::min(first.ready_at(), second.ready_after);
}

}  // namespace

std::vector<PlaceRun> cut_into_runs(std::span<const PlacedGradient> gradients,
                                    std::size_t most_bytes) {
  std::vector<PlaceRun> runs;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    bytes = aligned(bytes) + gradients[i].bytes;
    if (i > 0 && bytes <= most_bytes && between(gradients[i - 1], gradients[i]) <= most_bytes) {
      runs.back().end = i + 1;
    } else {
      runs.push_back({i, i + 1});
      bytes = gradients[i].bytes;
    }
  }
  return runs;
}

}  // namespace kolo
