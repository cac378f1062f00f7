#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "benchmarks/sim/simulator_schedules.h"
#include "topology/link_costs.h"
#include "topology/process_grid.h"

namespace kolo {

/// What the machines of a simulated job cost, beside their links.
struct MachineCosts {
  LinkCosts links = {};
  /// Bytes that a kernel of a device reads plus writes.
  LinkCost device_kernel{.latency_us = 3, .bytes_per_us = 1'500'000};
};

struct SimulatedBucket {
  const SimulatorSchedules* schedules = nullptr;
  std::vector<double> start_us;  ///< By rank.
};

struct SimulatorOptions {
  MachineCosts costs = {};
  /// By rank: by what factor its processor and kernels are slow. Empty: all by 1.
  std::vector<double> slowness = {};
  /// Only the ranks of node 0 are played, who get from each other what other nodes would send: for
  /// buckets whose schedules have a symmetry, started alike on all nodes. The result is the same.
  bool only_first_node = false;
};

/// Runs schedules on virtual time. Steps mean what they mean to the executor:
///
/// - A step is ready when its predecessors are complete, and a bucket's steps when it is started.
/// - A rank's processor does one thing at a time: messages and flags before kernels, first ready
///   first. Kernels of one node share its memory. Device steps take a stream each and not the
///   processor.
/// - A message to another node passes the sender's link, the wire, the receiver's link. Links are
///   full duplex, shared by the ranks of their node, and pass one message after the other; the next
///   link begins as soon as the first byte arrives. For two messages of S bytes from one node:
///
///       processor   |o|o|
///       link out      | S/beta | S/beta |
///       link in         alpha  | S/beta | S/beta |
///
/// - A message inside a node is copied out by its sender and in by its receiver, as kernels are. A
///   flag takes memory's latency. Sends never wait for their receive: peers have room for what
///   comes.
/// - A codec works on its rank's processor as the cost model's selector does: so many bytes
///   streamed, so many entries updated. Payloads have the size that they have as a rule.
/// - A native step begins when all its ranks are there, and takes what the cost model says.
///
/// Deterministic: equal input gives equal times, bit for bit. Threads: pure; any.
/// Returns: per bucket, when its last rank is done; microseconds from time 0.
/// Errors:  KoloError(kInternal) naming a rank, step and peer if it comes to a stand; UsageError
/// for
///          start times or slowness that do not fit the grid or, with only_first_node, the
///          symmetry.
/// Cost:    O(s log r) time for s steps and r ranks; 4 bytes a step of each bucket under way.
/// Source:  links as in Alexandrov et al., LogGP, SPAA 1995.
std::vector<double> simulate(const ProcessGrid& grid, std::span<const SimulatedBucket> buckets,
                             const SimulatorOptions& options);

}  // namespace kolo
