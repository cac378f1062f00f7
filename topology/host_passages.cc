#include "topology/host_passages.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

#include "topology/node_shares.h"

// How a round of messages is priced. Inside a node a message is written to a ring of bytes and read
// by its receiver. Between nodes all ranks of a node share its link, which sends and receives at
// the same time.
//
//   ring, 2 nodes x 2 ranks      0 -> 1 => 2 -> 3 => 0      -> memory, => network
//   one round of S/4             wait for the slower of both; 1 message of S/4 on each link

namespace kolo {
namespace {

double largest_node(const ProcessGrid& grid) {
  std::size_t largest = 0;
  for (int node = 0; node < grid.num_nodes(); ++node) {
    largest = std::max(largest, grid.ranks_of_node(node).size());
  }
  return static_cast<double>(largest);
}

/// Of so many parts of something, those that are not empty.
double parts(double bytes, double of) {
  return std::clamp(std::ceil(bytes / kLeastPartBytes), 1.0, of);
}

/// The slower of two things that happen at once.
Passage slower(const Passage& a, const Passage& b) {
  return {std::max(a.wait_us, b.wait_us), std::max(a.link_us, b.link_us),
          std::max(a.one_way_us, b.one_way_us), std::max(a.processor_us, b.processor_us)};
}

}  // namespace

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
    const double way = std::log(working_set_bytes / points[i - 1].bytes) /
                       std::log(points[i].bytes / points[i - 1].bytes);
    if (!(way > 0)) break;
    own_us_per_byte_ = before + (at - before) * std::min(way, 1.0);
  }
  shared_us_per_byte_ = std::max(1 / cost.shared_bytes_per_us, own_us_per_byte_);
}

/// One round in which some ranks send `bytes` each, one message per sender.
struct HostPassages::Round {
  explicit Round(const HostPassages& of)
      : passages(of),
        sent(static_cast<std::size_t>(of.grid_.num_nodes())),
        received(sent),
        local(sent) {}

  void add(int from, int to) {
    const auto source = static_cast<std::size_t>(passages.grid_.node(from));
    const auto target = static_cast<std::size_t>(passages.grid_.node(to));
    if (source == target) {
      most_local = std::max(most_local, ++local[source]);
      return;
    }
    most_remote = std::max({most_remote, ++sent[source], ++received[target]});
  }

  Passage passage(double bytes) const {
    const LinkCosts& costs = passages.costs_;
    Passage inside, between;
    if (most_local > 0) {
      // Written to the ring, read from it.
      inside.wait_us = costs.memory.latency_us;
      inside.processor_us = 2 * costs.step_us + passages.memory_.own_us(3 * most_local * bytes) +
                            passages.memory_.shared_us(most_local * bytes);
    }
    if (most_remote > 0) {
      // One message is sent before one is received, if not by the same rank.
      between = passages.messages(2);
      between.link_us = between.one_way_us = passages.link_us(most_remote * bytes);
    }
    return slower(inside, between);
  }

  /// The round, and later the same the other way round.
  Passage there_and_back(double bytes) const {
    Passage both = 2.0 * passage(bytes);
    int one_way = 0;
    for (std::size_t node = 0; node < sent.size(); ++node) {
      one_way = std::max(one_way, sent[node] + received[node]);
    }
    both.one_way_us = passages.link_us(one_way * bytes);
    return both;
  }

  const HostPassages& passages;
  std::vector<int> sent, received, local;  // by node
  int most_local = 0, most_remote = 0;
};

HostPassages::HostPassages(const ProcessGrid& grid, const LinkCosts& costs, double bucket_bytes,
                           double groups)
    : grid_(grid),
      costs_(costs),
      part_bytes_(bucket_bytes / groups),
      largest_node_(largest_node(grid)),
      memory_(costs.memory, largest_node_ * bucket_bytes) {}

double HostPassages::owners(double of) const { return parts(part_bytes_, of); }

double HostPassages::flag_steps_us(double local, double trips) const {
  return trips * 2 * (local - 1) * costs_.step_us;
}

Passage HostPassages::messages(double in_a_row) const {
  const NetworkCost& network = costs_.network;
  return {.wait_us = network.latency_us, .processor_us = in_a_row * network.message_us};
}

double HostPassages::link_us(double bytes) const { return bytes / costs_.network.bytes_per_us; }

double HostPassages::combine_us(double ranks, double sources, double bytes) const {
  return costs_.step_us + memory_.own_us(ranks * (sources + 1) * bytes);
}

Passage HostPassages::direct_in_memory(double bytes) const {
  // Each rank reads its part in all buckets and writes the sum there: one trip before, one after.
  const double ranks = grid_.world_size();
  return {
      .wait_us = 2 * costs_.memory.latency_us,
      .processor_us = flag_steps_us(ranks, 2) + costs_.step_us + memory_.own_us(ranks * 2 * bytes)};
}

Passage HostPassages::flat_in_memory(double bytes) const {
  // Each rank copies its bucket to where others read it, and after one trip reads all copies.
  const double ranks = grid_.world_size();
  return {.wait_us = costs_.memory.latency_us,
          .processor_us = flag_steps_us(ranks, 1) + 2 * costs_.step_us +
                          memory_.own_us(ranks * 4 * bytes) +
                          memory_.shared_us(ranks * (ranks - 1) * bytes)};
}

Passage HostPassages::flat(double bytes) const {
  if (grid_.num_nodes() == 1) return flat_in_memory(bytes);
  const double ranks = grid_.world_size();
  Passage slowest;
  for (int node = 0; node < grid_.num_nodes(); ++node) {
    const auto local = static_cast<double>(grid_.ranks_of_node(node).size());
    const double remote = ranks - local;
    Passage each = messages(2 * remote);
    each.link_us = each.one_way_us = link_us(local * remote * bytes);
    each.processor_us += flag_steps_us(local, 1) + memory_.own_us(local * 2 * bytes) +
                         memory_.shared_us(local * (local - 1) * bytes) +
                         combine_us(local, remote + 1, bytes);
    slowest = slower(slowest, each);
  }
  return slowest;
}

Passage HostPassages::direct(double bytes) const {
  if (grid_.num_nodes() == 1) return direct_in_memory(bytes);
  const double ranks = grid_.world_size();
  const double part = bytes / ranks;
  Passage slowest;
  for (int node = 0; node < grid_.num_nodes(); ++node) {
    const auto local = static_cast<double>(grid_.ranks_of_node(node).size());
    const double remote = ranks - local;
    const double local_messages = local * (local - 1);
    Passage phase = messages(2 * remote);
    phase.link_us = phase.one_way_us = link_us(local * remote * part);
    phase.processor_us += flag_steps_us(local, 1) + memory_.own_us(3 * local_messages * part) +
                          memory_.shared_us(local_messages * part);
    Passage both = 2.0 * phase;  // Reduce-scatter and all-gather.
    both.processor_us += combine_us(local, ranks, part);
    slowest = slower(slowest, both);
  }
  const std::vector<double> shares = node_shares(costs_, grid_.num_nodes());
  if (largest_node_ == 1 && !shares.empty()) {
    slowest.link_us = slowest.one_way_us = bytes * link_us_per_byte(costs_, shares);
  }
  return slowest;
}

Passage HostPassages::ring(double bytes) const {
  const int ranks = grid_.world_size();
  const double part = bytes / ranks;
  Round round(*this);
  for (int rank = 0; rank < ranks; ++rank) round.add(rank, (rank + 1) % ranks);
  Passage all = 2.0 * (ranks - 1) * round.passage(part);
  all.processor_us += (ranks - 1) * combine_us(largest_node_, 2, part);
  return all;
}

Passage HostPassages::halving_doubling(double bytes) const {
  const int ranks = grid_.world_size();
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)));
  Passage all;
  if (ranks > power) {  // The ranks above the power of two hand their part down and get the result.
    Round fold(*this);
    for (int rank = power; rank < ranks; ++rank) fold.add(rank, rank - power);
    all += fold.there_and_back(bytes);
    all.processor_us += combine_us(largest_node_, 2, bytes);
  }
  double part = bytes;
  for (int distance = power / 2; distance >= 1; distance /= 2) {
    part = std::max(part / 2, std::min<double>(bytes, kLeastPartBytes));
    // Who gives parts from `first` on, and later gets them back; nothing if they are empty.
    Round exchange(*this);
    for (int rank = 0; rank < power; ++rank) {
      const int first = (rank ^ distance) & ~(distance - 1);
      if (first < owners(power)) exchange.add(rank, rank ^ distance);
    }
    all += 2.0 * exchange.passage(part);
    all.processor_us += combine_us(largest_node_, 2, part);
  }
  return all;
}

Passage HostPassages::tree(double bytes) const {
  const int ranks = grid_.world_size();
  Passage all;
  for (int distance = 1; distance < ranks; distance *= 2) {
    Round round(*this);
    for (int rank = distance; rank < ranks; rank += 2 * distance) round.add(rank, rank - distance);
    all += round.there_and_back(bytes);
    all.processor_us += combine_us(largest_node_, 2, bytes);
  }
  return all;
}

Passage HostPassages::local_halves(double bytes) const {
  const double local = largest_node_;
  if (local == 1) return {};
  // Each rank combines its part, later copies the others' results, and is done when nobody reads
  // its own any more.
  return {.wait_us = 3 * costs_.memory.latency_us,
          .processor_us = flag_steps_us(local, 3) + combine_us(local, local, bytes / local) +
                          memory_.own_us(2 * (local - 1) * bytes)};
}

Passage HostPassages::packing(double bytes, Packing packing, std::string_view algorithm) const {
  const double local = largest_node_;
  if (packing == Packing::kNone) return {};
  // Read and written once each way. `flat` packs anyway and leaves out the way back.
  if (algorithm == "flat") return {};
  if (grid_.num_nodes() > 1 || algorithm != "direct") {
    return {.processor_us = 2 * costs_.step_us + memory_.own_us(4 * local * bytes)};
  }
  // On a single node what others own goes through their slots: written, read, overwritten with the
  // sum, read back. Tensors that do not fit the cache push the slots out of it. With a cast the own
  // part goes through a slot as well, so that it is rounded like the others, but stays with its
  // core.
  const double slot_us = std::max(1 / costs_.memory.slot_bytes_per_us, memory_.own_us(4));
  const double own_us = packing == Packing::kCast ? memory_.own_us(2) : 0;
  return {.processor_us = 2 * costs_.step_us + ((local - 1) * slot_us + own_us) * bytes};
}

}  // namespace kolo
