#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "comm/base/dtype.h"
#include "compression/sparse_all_reduce.h"
#include "topology/link_costs.h"

namespace kolo {

class CompressedGroup;

/// Measurements that one rank made once; equal on all ranks, because choices from each rank's own
/// clock would differ.
struct CompressionCosts {
  LinkCost link = {};                     ///< Link of one rank between nodes.
  double message_us = 0;                  ///< Time of a rank for each message that it sends.
  double selector_bytes_per_us = 10'000;  ///< Rate of selection and casts; 12 bytes per element.
  double pair_us = 0.02;                  ///< Time of a pair in total: sent, summed and received.
  double cores = 1;  ///< Cores that a rank has to itself; below 1 where ranks share cores.
};

struct CompressionGroupShape {
  std::size_t count = 0;  ///< Number of float32 elements.
  std::size_t pairs = 0;  ///< Number of pairs that each rank would send.
  int ranks = 1;
  double pair_bytes = 6;         ///< To the owners: a 16-bit value and an index.
  double result_pair_bytes = 8;  ///< Back: a float32 sum and an index.
};

/// What the exchange of a whole group takes, wherever the parts of it go.
struct ExchangeNeeds {
  double contribution_bytes = 0;  ///< Of one rank's contribution to all owners.
  double result_bytes = 0;        ///< Of all owners' results.
  double pass_us = 0;             ///< Work that elements make on a core of one's own.
  double sum_us = 0;              ///< Work on one contribution, as its sender, owner and receiver.
};

/// How gradients are sent: what a spec can name. One line in KOLO_COMPRESSION_METHODS adds one, and
/// the file that implements NAME defines `methods::NAME`.
struct CompressionMethod {
  std::string_view name;           ///< In specs: "topk".
  std::string_view title;          ///< In reports: "top-k".
  bool takes_density = false;      ///< Specs give the share of elements that is sent.
  bool is_open = false;            ///< The chooser decides between those that compete.
  bool competes = false;           ///< `auto` may choose it.
  std::optional<DType> wire = {};  ///< Dtype on the wire of gradients that travel dense.
  /// What prices follow from.
  ExchangeNeeds (*needs)(const CompressionGroupShape&, const CompressionCosts&) = nullptr;
  /// The codec of a compression group, and the payloads that its schedules plan for. Null:
  /// gradients travel dense.
  std::unique_ptr<CompressedGroup> (*make_group)(int rank, const ProcessGrid&,
                                                 const SparseOptions&) = nullptr;
  PayloadForms (*forms)(const SparsePlan&) = nullptr;
};

/// In the order in which `auto` prefers them: a later one has to be faster (chooser.h).
#define KOLO_COMPRESSION_METHODS(ENTRY) \
  ENTRY(none)                           \
  ENTRY(fp16)                           \
  ENTRY(bf16)                           \
  ENTRY(topk)                           \
  ENTRY(automatic)

namespace methods {
#define KOLO_DECLARE_METHOD(name) extern const CompressionMethod name;
KOLO_COMPRESSION_METHODS(KOLO_DECLARE_METHOD)
#undef KOLO_DECLARE_METHOD
}  // namespace methods

std::span<const CompressionMethod* const> compression_methods();

}  // namespace kolo
