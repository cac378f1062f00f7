#pragma once

#include <algorithm>
#include <vector>

#include "topology/link_costs.h"
#include "topology/node_costs.h"
#include "topology/process_grid.h"

namespace kolo {

/// The cost of one chunk in an algorithm, by the resource that it keeps busy on the
/// busiest node.
///
/// Chunks follow each other as closely as the busiest resource allows, because the waits of several
/// chunks overlap, and so do links and processors:
///
///   link        ===0=== ===1=== ===2===             3 chunks: the time of one alone,
///   processors         --0--   --1--   --2--         then 2 times the pace
///
/// The busiest resource does not hide all that happens beside it. How much was not measured: the
/// small share here decides between algorithms that fill a link alike, and hardly anything else.
///
/// Units: microseconds.
struct Passage {
  static constexpr double kNotHidden = 0.05;

  double wait_us = 0;       ///< Nothing is busy: flags and messages are in flight.
  double link_us = 0;       ///< The node's link carries bytes that the next step waits for.
  double one_way_us = 0;    ///< The part of it in the busier direction: the other chunks use both.
  double processor_us = 0;  ///< Ranks move bytes, and handle steps and messages.

  double alone_us() const { return wait_us + link_us + processor_us; }
  double pace_us() const {
    const auto [hidden_us, busiest_us] = std::minmax({one_way_us, processor_us});
    return busiest_us + kNotHidden * hidden_us;
  }

  Passage& operator+=(const Passage& next) {
    wait_us += next.wait_us;
    link_us += next.link_us;
    one_way_us += next.one_way_us;
    processor_us += next.processor_us;
    return *this;
  }
  friend Passage operator+(Passage first, const Passage& next) { return first += next; }
  friend Passage operator*(double times, const Passage& one) {
    return {times * one.wait_us, times * one.link_us, times * one.one_way_us,
            times * one.processor_us};
  }
};

/// The slower of two passages that happen at the same time.
inline Passage slower(const Passage& a, const Passage& b) {
  return {std::max(a.wait_us, b.wait_us), std::max(a.link_us, b.link_us),
          std::max(a.one_way_us, b.one_way_us), std::max(a.processor_us, b.processor_us)};
}

/// `chunks` equal chunks, one after the other; at least 1, a fraction counts as its part.
///
/// A link that saves up a burst while it rests passes at once the bytes that take `burst_us` at its
/// rate. Collectives that follow each other move no more than the rate in each direction, and what
/// the link saved up since the last one: programs do something between small collectives.
///
///   16 KiB up and down a tree, 138 us per direction, 40 us without the bytes    40 + 2 * 138
///   the same with a burst of 256 KiB, after a rest of 100 us                   max(40, 138 - 100)
inline double pipeline_us(const Passage& one, double chunks, double burst_us = 0) {
  const double many = std::max(chunks, 1.0);
  const double all_us = one.alone_us() + (many - 1) * one.pace_us();
  const double no_bytes_us = one.wait_us + many * one.processor_us;
  const double at_the_rate_us = many * one.one_way_us + Passage::kNotHidden * no_bytes_us;
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
/// The prices of algorithms are made of these terms.
///
/// The ranks of a node share its link. Every node is taken to be as fast as the busiest one.
///
/// Units:   bytes of one rank's chunk; microseconds.
/// Threads: immutable; any. `grid` and `costs` outlive it.
class HostLinks {
 public:
  /// `groups` groups like `grid` work at the same time, each on its part of the bucket.
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

  /// Messages between nodes that are in flight at once; each rank handles `in_a_row` of them in
  /// sequence, and shares its core with other ranks where they outnumber the cores. The time of
  /// their bytes is not included.
  Passage messages(double in_a_row) const;
  /// The same where one rank of each node handles them and the others rest.
  Passage messages_of_heads(double in_a_row) const;
  /// The same of one message, which one rank sends and another receives, while `messages` such
  /// pairs are at work.
  Passage message_pair(double messages) const;
  /// The same of messages between one rank and others, one each. It has a core to itself while it
  /// sends them, and the last of its peers has still to receive; or the first has to send before it
  /// receives.
  Passage messages_of_root(double peers) const;
  /// The time of a link for so many bytes in one direction.
  double link_us(double bytes) const { return bytes / costs_.network.bytes_per_us; }
  /// Steps of one rank that signals and awaits every peer of its node once per trip.
  double flags_us(double local, double trips) const;
  /// All ranks of one node combine `sources` operands of `bytes` each.
  double combine_us(double ranks, double sources, double bytes) const;
  /// Packs tensors before an algorithm and unpacks them after it: one pass in each direction.
  Passage packing(double bytes, Packing packing) const;

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

  Passage passage(double bytes) const;
  /// The round, and later the same in the other direction.
  Passage there_and_back(double bytes) const;

 private:
  const HostLinks& links_;
  std::vector<int> sent_, received_, local_;  // messages, by node
  int most_local_ = 0, most_remote_ = 0, all_remote_ = 0;
};

/// The time of one transfer over a link.
inline double transfer_us(const LinkCost& link, double bytes) {
  return link.latency_us + bytes / link.bytes_per_us;
}

/// `costs` as if nothing but the network took time.
LinkCosts network_only(LinkCosts costs);

}  // namespace kolo
