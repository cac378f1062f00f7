#pragma once

#include <span>
#include <string>
#include <vector>

#include "comm/algorithms/algorithm.h"

namespace kolo {

/// The algorithms of collectives other than all-reduce; among equally cheap ones the earlier is
/// preferred. To add one, add a line here and define `algorithms::NAME` in the file with its steps.
///
/// - direct: any spec; each contribution goes straight to its receivers.
/// - tree: broadcast, gather, scatter, reduce; binomial between nodes, few messages.
/// - bruck: all-gather, all-to-all, reduce-scatter; rounds of doubling distance, few messages.
/// - ring: all-gather, broadcast, reduce; from node to node, piece after piece.
/// - scatter_allgather: broadcast; a share to each node, which passes it on at once.
/// - pairwise: gather, scatter, all-to-all, and reduce-scatter except of 16-bit floats; one peer
/// per
///   round.
/// - native: all specs, in device memory; one collective of the device's native library.
#define KOLO_ALGORITHMS(ENTRY) \
  ENTRY(direct)                \
  ENTRY(tree)                  \
  ENTRY(bruck)                 \
  ENTRY(ring)                  \
  ENTRY(scatter_allgather)     \
  ENTRY(pairwise)              \
  ENTRY(native)

namespace algorithms {
#define KOLO_DECLARE_ALGORITHM(name) extern const Algorithm& name;
KOLO_ALGORITHMS(KOLO_DECLARE_ALGORITHM)
#undef KOLO_DECLARE_ALGORITHM
}  // namespace algorithms

/// All algorithms: those of all-reduce (all_reduce.h), then the others.
std::span<const Algorithm* const> all_algorithms();

/// The texts that AlgorithmRequest accepts for a single algorithm, for help and errors: "auto",
/// each name, "hierarchical" and "hierarchical:LOCAL,CROSS".
std::vector<std::string> algorithm_texts();

}  // namespace kolo
