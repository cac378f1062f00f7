#pragma once

#include <algorithm>
#include <vector>

#include "topology/link_costs.h"
#include "topology/node_costs.h"
#include "topology/process_grid.h"

namespace kolo {

/// The cost of one chunk in an algorithm on the busiest node, split by resource.
///
/// Chunks are pipelined. The waits of several chunks overlap, and links and processors work at the
/// same time, so the busiest resource decides the interval between chunks (the pace):
///
///   link        ===0=== ===1=== ===2===             3 chunks: the time of one alone,
///   processors         --0--   --1--   --2--         then 2 times the pace
///
/// Work of the other resource overlaps only in part: the fraction kNotHidden of it is added to the
/// pace. This fraction is an assumption, not a measurement. It is small and mainly decides between
/// algorithms that use a link equally.
///
/// Units: microseconds.
struct StageCost {
  static constexpr double kNotHidden = 0.05;

  double wait_us = 0;       ///< Time in which flags and messages are in flight.
  double link_us = 0;       ///< Time in which the node's link carries bytes.
  double one_way_us = 0;    ///< The part of `link_us` in the busier direction of the link.
  double processor_us = 0;  ///< Time in which ranks copy, reduce and handle messages.

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

/// Cost of two concurrent stages: the larger value of each resource.
inline StageCost slower(const StageCost& a, const StageCost& b) {
  return {std::max(a.wait_us, b.wait_us), std::max(a.link_us, b.link_us),
          std::max(a.one_way_us, b.one_way_us), std::max(a.processor_us, b.processor_us)};
}

/// Microseconds of `chunks` equal chunks in a pipeline. `chunks` may be fractional and counts as at
/// least 1.
///
/// A rate-limited link accumulates a burst while idle: it can then pass at once the bytes that it
/// otherwise carries in `burst_us`. The model assumes that programs compute for kRestUs between
/// collectives, so a burst saves at most kRestUs of link time. Examples:
///
///   16 KiB to a rank and back, 138 us per direction, 40 us without the bytes    40 + 2 * 138
///   the same with a burst of 256 KiB, after a rest of 100 us                   max(40, 138 - 100)
inline double pipeline_us(const StageCost& one, double chunks, double burst_us = 0) {
  const double many = std::max(chunks, 1.0);
  const double all_us = one.alone_us() + (many - 1) * one.pace_us();
  const double no_bytes_us = one.wait_us + many * one.processor_us;
  const double at_the_rate_us = many * one.one_way_us + StageCost::kNotHidden * no_bytes_us;
  constexpr double kRestUs = 100;
  return std::max({all_us - burst_us, no_bytes_us, at_the_rate_us - kRestUs});
}

/// The location and dtype of the tensors of a host bucket, which decide the copies that it needs.
enum class Packing {
  kNone,  ///< The tensors are in the bucket: no copies.
  kUser,  ///< The tensors are outside the bucket and have its dtype.
  kCast,  ///< The tensors are outside the bucket and have another dtype.
};

/// The costs of messages, flags and kernels for one host bucket among the ranks of a grid. Prices
/// of algorithms are sums of these terms.
///
/// The ranks of a node share its link. Every node is assumed to be as slow as the busiest one.
///
/// Units:   bytes of one rank's chunk; microseconds.
/// Threads: immutable; any. `grid` and `costs` must outlive this object.
class HostLinks {
 public:
  /// `groups` is the number of groups of the shape of `grid` that work concurrently, each on
  /// another part of the bucket.
  HostLinks(const ProcessGrid& grid, const LinkCosts& costs, double bucket_bytes,
            double groups = 1);

  const ProcessGrid& grid() const { return grid_; }
  const LinkCosts& costs() const { return costs_; }
  const NodeMemory& memory() const { return memory_; }
  double bucket_bytes() const { return bucket_bytes_; }
  double ranks() const { return grid_.world_size(); }
  /// The number of ranks of the largest node.
  double largest_node() const { return largest_node_; }
  /// The number of ranks that own a non-empty part, in a group of `ranks` ranks. Parts are cut at
  /// multiples of kWireAlignment bytes, so a small bucket has fewer owners than ranks.
  double owners(double ranks) const;

  /// Cost of concurrent messages between nodes, without the time of their bytes. Each rank handles
  /// `in_a_row` messages in sequence, and shares its core if there are more ranks than cores.
  StageCost messages(double in_a_row) const;
  /// Cost of one message between two ranks while `messages` such pairs are active.
  StageCost message_pair(double messages) const;
  /// Cost of one message between the root and each of `peers` ranks, in either direction. The root
  /// handles all messages in sequence; one peer's handling is added, because the last peer receives
  /// after the root's last send.
  StageCost messages_of_root(double peers) const;
  /// Microseconds of a link for `bytes` in one direction.
  double link_us(double bytes) const { return bytes / costs_.network.bytes_per_us; }
  /// Microseconds in which a rank of a node of `local` ranks signals and awaits every peer of its
  /// node, `trips` times.
  double flags_us(double local, double trips) const;
  /// Microseconds in which `ranks` ranks of one node each combine `sources` operands of `bytes`.
  double combine_us(double ranks, double sources, double bytes) const;
  /// Cost of packing `bytes` of tensors before an algorithm and unpacking them after it.
  StageCost packing(double bytes, Packing packing) const;

 private:
  const ProcessGrid& grid_;
  const LinkCosts& costs_;
  double bucket_bytes_;
  double groups_;
  double largest_node_;
  NodeMemory memory_;
};

/// The cost of one round, in which some ranks send one message each, all of the same size. Inside a
/// node, the sender writes to a byte ring in shared memory and the receiver reads from it. Between
/// nodes, all ranks of a node share its link, which sends and receives at the same time.
///
///   ring, 2 nodes x 2 ranks      0 -> 1 => 2 -> 3 => 0      -> memory, => network
///   one round of S/4             wait for the slower of both; 1 message of S/4 on each link
class Round {
 public:
  /// `links` must outlive this object.
  explicit Round(const HostLinks& links);

  void add(int from, int to);

  StageCost stage_cost(double bytes) const;
  /// Cost of the round followed by the same round in the opposite direction.
  StageCost there_and_back(double bytes) const;

 private:
  const HostLinks& links_;
  std::vector<int> sent_, received_, local_;  // messages, by node
  int most_local_ = 0, most_remote_ = 0, all_remote_ = 0;
};

/// Microseconds of one transfer of `bytes` over a link.
inline double transfer_us(const LinkCost& link, double bytes) {
  return link.latency_us + bytes / link.bytes_per_us;
}

/// Returns a copy of `costs` in which only the network takes time.
LinkCosts network_only(LinkCosts costs);

}  // namespace kolo
