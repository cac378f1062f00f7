#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "benchmarks/sim/simulator_schedules.h"
#include "topology/link_costs.h"
#include "topology/process_grid.h"

namespace kolo {

/// The costs of the machines of a simulated job, including their links.
struct MachineCosts {
  LinkCosts links = {};
  /// Bytes that a device kernel reads plus writes.
  LinkCost device_kernel{.latency_us = 3, .bytes_per_us = 1'500'000};
};

struct SimulatedBucket {
  const SimulatorSchedules* schedules = nullptr;
  std::vector<double> start_us;  ///< By rank.
};

struct SimulatorOptions {
  MachineCosts costs = {};
  /// Slowdown of each rank's processor and kernels, by rank. Empty: all 1.
  std::vector<double> slowness = {};
  /// Simulates only the ranks of node 0, which receive from each other what other nodes would send:
  /// for symmetric schedules of buckets, started alike on all nodes. The result is the same.
  bool only_first_node = false;
};

/// Runs schedules in virtual time. Steps have the same meaning as for the executor:
///
/// - A step is ready when its predecessors are complete; a bucket's steps when it is started.
/// - A rank's processor does one thing at a time: messages and flags before kernels, in the order
/// in
///   which they become ready. Kernels of one node share its memory. Device steps use streams, not
///   the processor.
/// - A message to another node passes the sender's link, the wire, the receiver's link. Links are
///   full duplex, shared by the ranks of their node, and pass one message after the other; the next
///   link begins as soon as the first byte arrives. For two messages of S bytes from one node:
///
///       processor   |o|o|
///       link out      | S/beta | S/beta |
///       link in         alpha  | S/beta | S/beta |
///
/// - A message inside a node is copied out by its sender and in by its receiver, like kernels. A
///   flag takes the latency of memory. Sends never wait for their receive: peers have room for
///   all messages.
/// - A codec uses its rank's processor as in the cost model of selection: bytes streamed plus
///   entries updated. Payloads have their usual size.
/// - A native step begins when all its ranks have reached it, and takes the cost model's time.
///
/// Deterministic: equal input gives equal times, bit for bit. Threads: any; pure.
/// Returns: per bucket, the time at which its last rank is done, in microseconds from time 0.
/// Errors:  KoloError(kInternal) naming a rank, step and peer in a deadlock; UsageError for start
///          times or slowness that do not fit the grid or, with only_first_node, the symmetry.
/// Cost:    O(s log r) time for s steps and r ranks; 4 bytes per step of each bucket in progress.
/// Source:  links as in Alexandrov et al., LogGP, SPAA 1995.
std::vector<double> simulate(const ProcessGrid& grid, std::span<const SimulatedBucket> buckets,
                             const SimulatorOptions& options);

}  // namespace kolo
