#pragma once

#include <algorithm>
#include <vector>

#include "topology/link_costs.h"
#include "topology/node_costs.h"
#include "topology/process_grid.h"

namespace kolo {

/// The cost of one chunk in an algorithm, by resource in use on the busiest node.
///
/// Chunks follow each other as closely as the busiest resource allows: the waits of several chunks
/// overlap, and links and processors work at the same time:
///
///   link        ===0=== ===1=== ===2===             3 chunks: the time of one alone,
///   processors         --0--   --1--   --2--         then 2 times the pace
///
/// The busiest resource does not hide all concurrent work. The share that it does not hide is an
/// assumption, not a measurement; it is small and mainly decides between algorithms that use a link
/// equally.
///
/// Units: microseconds.
struct StageCost {
  static constexpr double kNotHidden = 0.05;

  double wait_us = 0;       ///< Waiting for flags and messages in flight; no resource is busy.
  double link_us = 0;       ///< The node's link carries bytes that the next step waits for.
  double one_way_us = 0;    ///< Portion of `link_us` in the busier direction; other chunks use both
                            ///< directions.
  double processor_us = 0;  ///< Ranks copy or reduce bytes, and handle steps and messages.

  double alone_us() const { return wait_us + link_us + processor_us; }
  double pace_us() const {
    const auto [hidden_us, busiest_us] = std::minmax({one_way_us, processor_us});
    return busiest_us + kNotHidden * hidden_us;
  }

  StageCost& operator+=(const StageCost& next) {
    wait_us += next.wait_us;
    link_us += next.link_us;
    one_way_us += next.one_way_us;
    processor_us += next.processor_us;
    return *this;
  }
  friend StageCost operator+(StageCost first, const StageCost& next) { return first += next; }
  friend StageCost operator*(double times, const StageCost& one) {
    return {times * one.wait_us, times * one.link_us, times * one.one_way_us,
            times * one.processor_us};
  }
};

/// The slower of two stage costs that happen at the same time.
inline StageCost slower(const StageCost& a, const StageCost& b) {
  return {std::max(a.wait_us, b.wait_us), std::max(a.link_us, b.link_us),
          std::max(a.one_way_us, b.one_way_us), std::max(a.processor_us, b.processor_us)};
}

/// Time of `chunks` equal chunks in sequence. At least 1; a fraction counts proportionally.
///
/// A rate-limited link saves up a burst while idle: it can then pass at once as many bytes as it
/// otherwise carries in `burst_us`. Back-to-back collectives are limited by the rate in each
/// direction, plus what the link saved up since the last one: programs usually compute between
/// small collectives.
///
///   16 KiB up and down a tree, 138 us per direction, 40 us without the bytes    40 + 2 * 138
///   the same with a burst of 256 KiB, after a rest of 100 us                   max(40, 138 - 100)
inline double pipeline_us(const StageCost& one, double chunks, double burst_us = 0) {
  const double many = std::max(chunks, 1.0);
  const double all_us = one.alone_us() + (many - 1) * one.pace_us();
  const double no_bytes_us = one.wait_us + many * one.processor_us;
  const double at_the_rate_us = many * one.one_way_us + StageCost::kNotHidden * no_bytes_us;
  constexpr double kRestUs = 100;
  return std::max({all_us - burst_us, no_bytes_us, at_the_rate_us - kRestUs});
}

/// Where the tensors of a host bucket live.
enum class Packing {
  kNone,  ///< The tensors are in the bucket itself.
  kUser,  ///< Elsewhere, in the bucket's dtype.
  kCast,  ///< Elsewhere, in another dtype: every element is converted when it is copied.
};

/// The costs of messages, flags and kernels among the ranks of a grid that work on one host bucket.
/// Prices of algorithms are sums of these terms.
///
/// The ranks of a node share its link. Every node is assumed to be as slow as the busiest one.
///
/// Units:   bytes of one rank's chunk; microseconds.
/// Threads: immutable; any. `grid` and `costs` outlive it.
class HostLinks {
 public:
  /// `groups` groups like `grid` work at the same time, each on its own part of the bucket.
  HostLinks(const ProcessGrid& grid, const LinkCosts& costs, double bucket_bytes,
            double groups = 1);

  const ProcessGrid& grid() const { return grid_; }
  const LinkCosts& costs() const { return costs_; }
  const NodeMemory& memory() const { return memory_; }
  double bucket_bytes() const { return bucket_bytes_; }
  double ranks() const { return grid_.world_size(); }
  /// The ranks of the largest node.
  double largest_node() const { return largest_node_; }
  /// The number of ranks, out of `ranks` of a group, that own a part of the bucket: parts are cut
  /// at multiples of kWireAlignment bytes, so a small bucket has fewer owners than ranks.
  double owners(double ranks) const;

  /// Concurrent messages between nodes: each rank handles `in_a_row` of them in sequence, and
  /// shares its core if there are more ranks than cores. Excludes the time of their bytes.
  StageCost messages(double in_a_row) const;
  /// As `messages`, when one rank per node handles them and the other ranks are idle.
  StageCost messages_of_heads(double in_a_row) const;
  /// One message between two ranks, while `messages` such pairs are active.
  StageCost message_pair(double messages) const;
  /// One message between the root and each of `peers` ranks. The root has a core to itself while it
  /// sends; then the last peer has still to receive. In the other direction, the first peer has to
  /// send before the root receives.
  StageCost messages_of_root(double peers) const;
  /// The time of a link for `bytes` in one direction.
  double link_us(double bytes) const { return bytes / costs_.network.bytes_per_us; }
  /// Time of the steps in which a rank signals and awaits every peer of its node, once per trip.
  double flags_us(double local, double trips) const;
  /// Time in which all ranks of one node combine `sources` operands of `bytes` each.
  double combine_us(double ranks, double sources, double bytes) const;
  /// Time to pack tensors before an algorithm and unpack them after it: one pass each.
  StageCost packing(double bytes, Packing packing) const;

 private:
  const ProcessGrid& grid_;
  const LinkCosts& costs_;
  double bucket_bytes_;
  double groups_;
  double largest_node_;
  NodeMemory memory_;
};

/// One round in which some ranks send one message each, all of the same size. Inside a node a
/// message is written to a ring of bytes and read by its receiver. Between nodes all ranks of a
/// node share its link, which sends and receives at the same time.
///
///   ring, 2 nodes x 2 ranks      0 -> 1 => 2 -> 3 => 0      -> memory, => network
///   one round of S/4             wait for the slower of both; 1 message of S/4 on each link
class Round {
 public:
  /// `links` outlives it.
  explicit Round(const HostLinks& links);

  void add(int from, int to);

  StageCost stage_cost(double bytes) const;
  /// The round, followed by a round in the opposite direction.
  StageCost there_and_back(double bytes) const;

 private:
  const HostLinks& links_;
  std::vector<int> sent_, received_, local_;  // messages, by node
  int most_local_ = 0, most_remote_ = 0, all_remote_ = 0;
};

/// The time of one transfer over a link.
inline double transfer_us(const LinkCost& link, double bytes) {
  return link.latency_us + bytes / link.bytes_per_us;
}

/// A copy of `costs` in which only the network takes time.
LinkCosts network_only(LinkCosts costs);

}  // namespace kolo
