#include "topology/node_memory.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

namespace kolo {

NodeMemory::NodeMemory(const MemoryCost& cost, double working_set_bytes) {
  constexpr double kMiB = 1 << 20;
  struct Point {
    double bytes, rate;
  };
  const std::array<Point, 4> points = {{{1 * kMiB, cost.cached_bytes_per_us},
                                        {8 * kMiB, cost.bytes_per_us_8m},
                                        {32 * kMiB, cost.bytes_per_us_32m},
                                        {64 * kMiB, cost.bytes_per_us}}};
  own_us_per_byte_ = 1 / points.front().rate;
  for (std::size_t i = 1; i < points.size(); ++i) {
    // Never cheaper in a larger set, however noisy the measurement was.
    const double before = own_us_per_byte_, at = std::max(before, 1 / points[i].rate);
    const double position = std::log(working_set_bytes / points[i - 1].bytes) /
                            std::log(points[i].bytes / points[i - 1].bytes);
    if (!(position > 0)) break;
    own_us_per_byte_ = before + (at - before) * std::min(position, 1.0);
  }
  shared_us_per_byte_ = std::max(1 / cost.shared_bytes_per_us, own_us_per_byte_);
  const double packed =
      cost.packs_past_cache() ? cost.streamed_bytes_per_us : cost.packed_bytes_per_us;
  // Slots stay in the cache whatever the working set; the tensors that are read and written do not.
  packed_us_per_byte_ = std::max(1 / packed, 3 * own_us_per_byte_);
}

}  // namespace kolo
