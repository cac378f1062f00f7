#include "comm/algorithms/host/collective_price.h"

#include <algorithm>
#include <vector>

#include "comm/algorithms/chunking.h"
#include "comm/algorithms/host/sums.h"

namespace kolo {

CollectiveSize size_of(const CompileContext& context) {
  return {.kind = context.spec.kind,
          .bytes = static_cast<double>(context.layout.bytes()),
          .sums_in_one_place = sums_in_one_place(context.layout),
          .tensors = static_cast<double>(context.spec.tensors())};
}

Price CollectiveAlgorithm::price(const CompileContext& context) const {
  const CollectiveSize size = size_of(context);
  const HostLinks links(context.grid, context.options.link_costs, size.bytes);
  const double us = functions_.predict_us(links, size, context.options);
  return {.us = us, .busy_us = us};
}

std::size_t CollectiveAlgorithm::chunk_bytes(const CompileContext& context) const {
  const std::vector<std::size_t> sizes = sizes_for(context.layout.bytes(), kSmallestChunk);
  CompileOptions options = context.options;
  return *std::ranges::min_element(sizes, {}, [&](std::size_t size) {
    options.chunk_bytes = size;
    return price({context.spec, context.layout, context.grid, options}).us;
  });
}

double CollectivePrice::part_bytes() const {
  if (has_pairs(size_.kind)) return size_.bytes / (ranks() * ranks());
  return has_parts(size_.kind) ? size_.bytes / ranks() : size_.bytes;
}

double CollectivePrice::direct_messages() const {
  const double ways = has_root() ? 1 : 2;
  if (reduces(size_.kind) && !size_.sums_in_one_place) return ways * (nodes() - 1);
  return ways * (is_to_all(size_.kind) ? nodes() - 1 : ranks() - local());
}

double CollectivePrice::direct_bytes() const {
  const double addends = reduces(size_.kind) && size_.sums_in_one_place ? local() : 1;
  const double each = addends * (nodes() - 1);
  if (has_pairs(size_.kind)) return each / (nodes() * nodes()) * size_.bytes;
  return (has_parts(size_.kind) ? each / nodes() : each) * size_.bytes;
}

double CollectivePrice::copies_us() const {
  double moved = size_.bytes;  // Bytes that all ranks of the busiest node copy.
  double packed_us = 0;
  if (has_pairs(size_.kind)) moved = 2 * size_.bytes / nodes();
  if (is_to_all(size_.kind)) {
    moved = (local() + 1) * size_.bytes;
  }
  if (reduces(size_.kind)) {
    // Ranks of a node pass on all contributions that they do not sum; nodes pass on their sums.
    moved = nodes() > 1 ? 2 * size_.bytes : 0;
    packed_us = links_.memory().packed_us((local() - 1) * size_.bytes);
  }
  return 2 * links_.costs().step_us + links_.memory().own_us(2 * moved) + packed_us;
}

double CollectivePrice::handed_on_us() const {
  if (local() <= 1) return 0;
  const LinkCosts& costs = links_.costs();
  const double woken_us = costs.rank_cores < 1 ? costs.network.message_us : 0;
  return costs.memory.latency_us + woken_us;
}

double CollectivePrice::link_us(double bytes, bool is_crowded) const {
  const double loss = is_crowded && nodes() > 2 ? links_.costs().network.crowded_loss : 0;
  return links_.link_us(bytes) * (1 + loss);
}

double CollectivePrice::rounds_us(const StageCost& one, double rounds) const {
  const NetworkCost& network = links_.costs().network;
  return links_.costs().bucket_us +
         pipeline_us(one, rounds, network.burst_bytes / network.bytes_per_us);
}

}  // namespace kolo
