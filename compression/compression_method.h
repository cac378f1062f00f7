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

/// Costs that one rank measures once and shares with all ranks, because ranks with different
/// measurements would choose differently.
struct CompressionCosts {
  LinkCost link = {};                     ///< The link of one rank between nodes.
  double message_us = 0;                  ///< Time of a rank for each message that it sends.
  double selector_bytes_per_us = 10'000;  ///< Rate of selection and casts; 12 bytes per element.
  double pair_us = 0.02;                  ///< Time to send, sum and receive one pair.
  double cores = 1;                       ///< Cores per rank; below 1 if ranks share cores.
};

struct CompressedBucketShape {
  std::size_t count = 0;    ///< Number of float32 elements.
  std::size_t pairs = 0;    ///< Number of pairs that each rank would send.
  std::size_t factors = 0;  ///< Numbers in the factors of all tensors, if the method sends factors.
  std::size_t matrix_rank = 4;
  int ranks = 1;
  double pair_bytes = 6;         ///< Bytes of a pair sent to an owner: a 16-bit value and an index.
  double result_pair_bytes = 8;  ///< Bytes of a pair sent back: a float32 sum and an index.
  /// Bytes of a sum sent back by a method that codes sums; 0 if the sum is sent as a code.
  double sum_bytes = 0;
};

/// Resources that the exchange of a whole bucket needs on any route.
struct ExchangeNeeds {
  double contribution_bytes = 0;  ///< Bytes of one rank's contribution to all owners.
  double result_bytes = 0;        ///< Bytes of the results of all owners.
  double pass_us = 0;             ///< Work on elements, for a rank with a core of its own.
  double sum_us = 0;              ///< Work on one contribution by its sender, owner and receiver.
  int exchanges = 1;              ///< Exchanges that wait for each other and share these bytes.
};

/// A method to send gradients, which a spec can name. To add a method, add a line to
/// KOLO_COMPRESSION_METHODS and define `methods::NAME` in the file that implements it.
struct CompressionMethod {
  std::string_view name;         ///< In specs: "topk".
  std::string_view title;        ///< In reports: "top-k".
  bool takes_density = false;    ///< Specs give the share of elements to send.
  bool takes_threshold = false;  ///< Specs give the magnitude from which a value is sent.
  bool takes_rank = false;       ///< Specs give the columns of the factors that are sent.
  bool needs_owners = false;     ///< Owners make the sums: no all-gather.
  bool codes_sums = false;       ///< Owners code the sums too and keep a residual of them.
  /// Results are close enough to averages of gradients for an adaptive optimizer.
  bool is_close = false;
  bool is_open = false;    ///< The chooser replaces it by a method that competes.
  bool competes = false;   ///< `auto` may choose it.
  bool on_device = false;  ///< Works in device memory too: the codec has `select`, `scatter`.
  std::optional<DType> wire = {};  ///< The dtype in messages, if gradients are sent dense.
  /// Largest number of elements of a compressed bucket, unless a single tensor is larger. Small
  /// buckets are sent while later gradients are still computed; in large ones a selection or a
  /// round of messages has more elements.
  std::size_t bucket_elements = std::size_t{1} << 22;
  /// Returns what an exchange needs; the chooser's predictions depend on it.
  ExchangeNeeds (*needs)(const CompressedBucketShape&, const CompressionCosts&) = nullptr;
  /// `make_codec` makes the codec of a compressed bucket. `forms` returns the payload sizes for
  /// which the bucket's schedules are compiled. Both are null if gradients are sent dense.
  std::unique_ptr<GradientCodec> (*make_codec)(int rank, const ProcessGrid&,
                                               const SparseOptions&) = nullptr;
  PayloadForms (*forms)(const SparsePlan&) = nullptr;
  /// As `forms`, for the second exchange of a method that has one: its codec implements `refine`.
  PayloadForms (*refined_forms)(const SparsePlan&) = nullptr;
};

/// Methods in the order in which `auto` prefers them; a later method must be faster (chooser.h).
#define KOLO_COMPRESSION_METHODS(ENTRY) \
  ENTRY(none)                           \
  ENTRY(fp16)                           \
  ENTRY(bf16)                           \
  ENTRY(topk)                           \
  ENTRY(int8)                           \
  ENTRY(fp8)                            \
  ENTRY(two_bit)                        \
  ENTRY(sign)                           \
  ENTRY(power_sgd)                      \
  ENTRY(automatic)

namespace methods {
#define KOLO_DECLARE_METHOD(name) extern const CompressionMethod name;
KOLO_COMPRESSION_METHODS(KOLO_DECLARE_METHOD)
#undef KOLO_DECLARE_METHOD
}  // namespace methods

std::span<const CompressionMethod* const> compression_methods();

}  // namespace kolo
