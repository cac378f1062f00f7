#include "comm/algorithms/host_links.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "comm/schedule/bucket_layout.h"

namespace kolo {

HostLinks::HostLinks(const ProcessGrid& grid, const LinkCosts& costs, double bucket_bytes,
                     double groups)
    : grid_(grid),
      costs_(costs),
      bucket_bytes_(bucket_bytes),
      groups_(groups),
      largest_node_(grid.largest_node()),
      memory_(costs.memory, largest_node_ * bucket_bytes) {}

double HostLinks::owners(double ranks) const {
  return std::clamp(std::ceil(bucket_bytes_ / groups_ / static_cast<double>(kWireAlignment)), 1.0,
                    ranks);
}

StageCost HostLinks::messages(double in_a_row) const {
  return {.wait_us = costs_.network.latency_us,
          .processor_us = in_a_row * costs_.network.message_us / costs_.rank_cores};
}

StageCost HostLinks::message_pair(double messages) const {
  const double at_once = std::min(messages, costs_.rank_cores * ranks());
  return {.wait_us = costs_.network.latency_us,
          .processor_us = 2 * costs_.network.message_us * messages / at_once};
}

StageCost HostLinks::messages_of_root(double peers) const {
  const double on_each_core = 2 * peers / (costs_.rank_cores * ranks());
  return {.wait_us = costs_.network.latency_us,
          .processor_us = costs_.network.message_us * std::max(peers + 1, on_each_core)};
}

double HostLinks::flags_us(double local, double trips) const {
  return trips * 2 * (local - 1) * costs_.step_us;
}

double HostLinks::combine_us(double ranks, double sources, double bytes) const {
  return costs_.step_us + memory_.own_us(ranks * (sources + 1) * bytes);
}

StageCost HostLinks::packing(double bytes, Packing packing) const {
  if (packing == Packing::kNone) return {};
  return {.processor_us = 2 * costs_.step_us + memory_.own_us(4 * largest_node_ * bytes)};
}

Round::Round(const HostLinks& links)
    : links_(links),
      sent_(static_cast<std::size_t>(links.grid().num_nodes())),
      received_(sent_),
      local_(sent_) {}

void Round::add(int from, int to) {
  const auto source = static_cast<std::size_t>(links_.grid().node(from));
  const auto target = static_cast<std::size_t>(links_.grid().node(to));
  if (source == target) {
    most_local_ = std::max(most_local_, ++local_[source]);
  } else {
    most_remote_ = std::max({most_remote_, ++sent_[source], ++received_[target]});
    ++all_remote_;
  }
}

StageCost Round::stage_cost(double bytes) const {
  StageCost inside, between;
  if (most_local_ > 0) {
    // A message is written to the byte ring and read from it.
    inside.wait_us = links_.costs().memory.latency_us;
    inside.processor_us = 2 * links_.costs().step_us +
                          links_.memory().own_us(3 * most_local_ * bytes) +
                          links_.memory().shared_us(most_local_ * bytes);
  }
  if (most_remote_ > 0) {
    between = links_.message_pair(all_remote_);
    between.link_us = between.one_way_us = links_.link_us(most_remote_ * bytes);
  }
  return slower(inside, between);
}

StageCost Round::there_and_back(double bytes) const {
  StageCost both = 2.0 * stage_cost(bytes);
  int one_way = 0;
  for (std::size_t node = 0; node < sent_.size(); ++node) {
    one_way = std::max(one_way, sent_[node] + received_[node]);
  }
  both.one_way_us = links_.link_us(one_way * bytes);
  return both;
}

LinkCosts network_only(LinkCosts costs) {
  constexpr double kNoTime = std::numeric_limits<double>::infinity();
  costs.network.message_us = costs.step_us = 0;
  costs.memory.cached_bytes_per_us = costs.memory.bytes_per_us_8m = costs.memory.bytes_per_us_32m =
      costs.memory.bytes_per_us = costs.memory.shared_bytes_per_us =
          costs.memory.packed_bytes_per_us = costs.memory.streamed_bytes_per_us = kNoTime;
  return costs;
}

}  // namespace kolo
