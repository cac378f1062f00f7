#pragma once

#include <span>
#include <string>
#include <vector>

#include "comm/algorithms/algorithm.h"

namespace kolo {

/// The algorithms of collectives other than all-reduce. If two algorithms are equally cheap, the
/// earlier one is chosen. To add an algorithm, add a line here and define `algorithms::NAME` in the
/// file with its steps.
///
/// - direct: any spec in host memory; each contribution is sent directly to its receivers.
/// - ring: all-gather, broadcast, reduce; pieces are pipelined from node to node.
/// - scatter_allgather: broadcast; the root sends each node a share, which that node forwards to
///   the others.
/// - pairwise: gather, scatter, all-to-all, and reduce-scatter except of 16-bit floats; rounds with
///   one peer each.
/// - native: any spec in device memory; one collective of the device's native library.
#define KOLO_ALGORITHMS(ENTRY) \
  ENTRY(direct)                \
  ENTRY(ring)                  \
  ENTRY(scatter_allgather)     \
  ENTRY(pairwise)              \
  ENTRY(native)

namespace algorithms {
#define KOLO_DECLARE_ALGORITHM(name) extern const Algorithm& name;
KOLO_ALGORITHMS(KOLO_DECLARE_ALGORITHM)
#undef KOLO_DECLARE_ALGORITHM
}  // namespace algorithms

/// All algorithms: the all-reduces of all_reduce.h, then the algorithms above.
std::span<const Algorithm* const> all_algorithms();

/// The names that AlgorithmRequest accepts, for help texts and errors: "auto", each algorithm,
/// "hierarchical" and "hierarchical:LOCAL,CROSS".
std::vector<std::string> algorithm_texts();

}  // namespace kolo
