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
  /// Cost of a device kernel. Bytes count both reads and writes.
  LinkCost device_kernel{.latency_us = 3, .bytes_per_us = 1'500'000};
};

struct SimulatedBucket {
  const SimulatorSchedules* schedules = nullptr;
  std::vector<double> start_us;  ///< Start times in microseconds, by rank.
};

struct SimulatorOptions {
  MachineCosts costs = {};
  /// Factor by which the processor and the kernels of each rank are slower. Empty: all 1.
  std::vector<double> slowness = {};
  /// Simulates only the ranks of node 0; they receive from each other the messages that other nodes
  /// would send. The result is the same if the schedules are symmetric and the buckets start at
  /// equal times on all nodes.
  bool only_first_node = false;
};

/// Runs schedules in virtual time. Steps have the same meaning as for the executor:
///
/// - A step is ready when its bucket is started and its predecessors are complete.
/// - A rank's processor does one thing at a time: messages and flags before kernels, in the order
///   in which they become ready. Kernels of one node share its memory. Device steps use streams,
///   not the processor.
/// - A message to another node passes the sender's link, the wire and the receiver's link. Links
///   are full duplex, are shared by the ranks of their node, and pass one message after the other.
///   The receiver's link begins when the first byte arrives. For two messages of S bytes from one
///   node:
///
///       processor   |o|o|
///       link out      | S/beta | S/beta |
///       link in         alpha  | S/beta | S/beta |
///
/// - A message inside a node is copied by its sender and then by its receiver, like kernels. A flag
///   takes the latency of memory. Sends do not wait for their receives, because peers have room for
///   all messages.
/// - A codec uses its rank's processor as in the cost model of top-k selection: bytes streamed plus
///   entries updated. Payloads have their usual size.
/// - A native step begins when all its ranks have reached it, and takes the cost model's time.
///
/// Deterministic: equal input gives equal times, bit for bit. Threads: any; pure.
/// Returns: for each bucket, the time in microseconds at which its last rank is done.
/// Errors:  KoloError(kInternal) naming a rank, step and peer in a deadlock; UsageError for start
///          times or slowness that do not fit the grid or, with only_first_node, the symmetry.
/// Cost:    O(s log r) time for s steps and r ranks; 4 bytes per step of each bucket in progress.
/// Source:  links as in Alexandrov et al., LogGP, SPAA 1995.
std::vector<double> simulate(const ProcessGrid& grid, std::span<const SimulatedBucket> buckets,
                             const SimulatorOptions& options);

}  // namespace kolo
