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

class GradientCodec;

/// Measurements made once by one rank and shared with all ranks, because choices from each rank's
/// own clock would differ.
struct CompressionCosts {
  LinkCost link = {};                     ///< Link of one rank between nodes.
  double message_us = 0;                  ///< Time of a rank for each message that it sends.
  double selector_bytes_per_us = 10'000;  ///< Rate of selection and casts; 12 bytes per element.
  double pair_us = 0.02;                  ///< Time to send, sum and receive one pair.
  double cores = 1;  ///< Cores that a rank has to itself; below 1 where ranks share cores.
};

struct CompressedBucketShape {
  std::size_t count = 0;  ///< Number of float32 elements.
  std::size_t pairs = 0;  ///< Number of pairs that each rank would send.
  int ranks = 1;
  double pair_bytes = 6;         ///< To the owners: a 16-bit value and an index.
  double result_pair_bytes = 8;  ///< Back: a float32 sum and an index.
};

/// Resources for the exchange of a whole bucket, whatever its route.
struct ExchangeNeeds {
  double contribution_bytes = 0;  ///< One rank's contribution to all owners.
  double result_bytes = 0;        ///< Results of all owners.
  double pass_us = 0;             ///< Work on elements, for a rank with its own core.
  double sum_us = 0;              ///< Work on one contribution, by its sender, owner and receiver.
};

/// A way to send gradients, which a spec can name. To add one, add a line to
/// KOLO_COMPRESSION_METHODS and define `methods::NAME` in the file that implements it.
struct CompressionMethod {
  std::string_view name;           ///< In specs: "topk".
  std::string_view title;          ///< In reports: "top-k".
  bool takes_density = false;      ///< Specs give the share of elements that is sent.
  bool is_open = false;            ///< The chooser decides between the methods that compete.
  bool competes = false;           ///< `auto` may choose it.
  std::optional<DType> wire = {};  ///< Wire dtype of gradients that are sent dense.
  /// Basis of the method's price.
  ExchangeNeeds (*needs)(const CompressedBucketShape&, const CompressionCosts&) = nullptr;
  /// Makes the codec of a compression bucket, and the payloads that its schedules plan for. Null:
  /// gradients are sent dense.
  std::unique_ptr<GradientCodec> (*make_codec)(int rank, const ProcessGrid&,
                                               const SparseOptions&) = nullptr;
  PayloadForms (*forms)(const SparsePlan&) = nullptr;
};

/// In the order of preference of `auto`: a later method has to be faster (chooser.h).
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
