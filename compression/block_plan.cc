#include "compression/block_plan.h"

#include <algorithm>

#include "compression/density_schedule.h"
#include "compression/kernels/nth_key.h"
#include "compression/kernels/radix_select.h"

namespace kolo {

std::size_t BlockPlan::blocks_of(std::size_t tensor) const {
  return (tensor_counts[tensor] + block - 1) / block;
}

std::size_t BlockPlan::blocks() const {
  std::size_t sum = 0;
  for (std::size_t t = 0; t < tensor_counts.size(); ++t) sum += blocks_of(t);
  return sum;
}

std::size_t BlockPlan::most_values() const {
  std::size_t sum = 0;
  for (std::size_t t = 0; t < tensor_counts.size(); ++t) {
    sum += std::min(pairs_to_keep(density, blocks_of(t)) * block, tensor_counts[t]);
  }
  return sum;
}

std::size_t BlockPlan::most_blocks() const {
  std::size_t sum = 0;
  for (std::size_t t = 0; t < tensor_counts.size(); ++t) {
    sum += pairs_to_keep(density, blocks_of(t));
  }
  return sum;
}

Extent BlockPlan::dealt(int owner, std::size_t values) const {
  const auto owners = static_cast<std::size_t>(ranks);
  const auto i = static_cast<std::size_t>(owner);
  const std::size_t each = values / owners;
  const std::size_t more = values % owners;  // The first owners have one more.
  return {.offset = i * each + std::min(i, more), .count = each + (i < more ? 1 : 0)};
}

BlockPayloadPlan BlockPlan::payload(DType dtype) const {
  const std::size_t values = dealt(0, most_values()).count;
  // At most two neighbours are cut, and the last block of a tensor may be short.
  const std::size_t whole = values / block + 2 + tensor_counts.size();
  return {.wire = dtype,
          .most_blocks = std::min({most_blocks(), values, whole}),
          .most_values = values};
}

void choose_blocks(std::span<const float> scores, std::size_t k, std::vector<std::uint32_t>& keys,
                   std::vector<std::uint32_t>& chosen) {
  chosen.clear();
  if (k == 0) return;
  radix::NthKey nth = radix::nth_largest_key(scores, k, 0, keys);
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const std::uint32_t key = radix::key_of(scores[i]);
    if (key < nth.key || (key == nth.key && nth.need == 0)) continue;
    if (key == nth.key) --nth.need;
    chosen.push_back(static_cast<std::uint32_t>(i));
  }
}

}  // namespace kolo
