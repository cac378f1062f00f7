#pragma once

#include <vector>

#include "topology/gpu_discovery.h"
#include "topology/pci_distance.h"

namespace kolo {

/// [from][to]; kSelf on the diagonal.
using PciDistances = std::vector<std::vector<PciDistance>>;

/// A closed order of all GPUs of a node, in which each one passes data to the next.
struct GpuRing {
  std::vector<int> order;  ///< Indices; starts with GPU 0.
  int nvlinks = 0;         ///< That every hop has for itself, each way; 0 if a hop goes over PCIe.
};

/// The rings that use the node's links best. A hop is better with more NVLinks, then with peer
/// access, then by CUDA's performance rank, then by PCI distance; of two rings the one whose worst
/// hops are fewer and better comes first, and of equals the one that is lower in the order of
/// indices. As long as the NVLinks left over carry another ring, there is one more:
///
///   0 -- 1      single NVLinks 0-1, 0-2, 1-3, double ones 0=3, 1=2, 2=3:
///   || X ||     rings {0, 1, 2, 3} and {0, 2, 1, 3}, with one link for each
///   3 == 2
///
/// Links through switches are shared, so one ring takes all of them. Each ring serves both
/// directions.
///
/// Before:  both matrices have a row and a column for each GPU. A hop is as good as its worse
///          direction.
/// Cost:    2^n n^2 for each ring of n GPUs. Beyond 16 GPUs: one ring, in the order of indices.
/// Threads: pure.
/// Source:  Held and Karp, "A dynamic programming approach to sequencing problems", 1962.
std::vector<GpuRing> build_rings(const GpuLinks& links, const PciDistances& distances);

/// A GPU for each of `local_size` ranks of the node, by local rank, so that a ring in the order of
/// ranks is one of good hops: the best stretch of the first ring, or all of it. With more ranks
/// than GPUs neighbouring ranks share one.
///
/// Before:  `rings` is what `build_rings` made of the same matrices, and not empty.
/// Threads: pure.
std::vector<int> suggest_gpus(const GpuLinks& links, const PciDistances& distances,
                              const std::vector<GpuRing>& rings, int local_size);

}  // namespace kolo
