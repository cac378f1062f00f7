#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "comm/base/dtype.h"
#include "compression/density_schedule.h"
#include "compression/exchange_routes.h"
#include "compression/owner_quota.h"
#include "compression/sparse_all_reduce.h"

namespace kolo {

/// How a tensor's gradients travel.
enum class CompressionMethod : std::uint8_t {
  kNone,       ///< Dense, in the tensor's dtype or the wire's that its set has.
  kFloat16,    ///< Dense, 16-bit on the wire.
  kBFloat16,   ///< Dense, 16-bit on the wire.
  kTopK,       ///< The largest, with error feedback.
  kBlockTopK,  ///< Blocks that all ranks choose together, with error feedback.
  kAuto,       ///< Whichever of these the chooser predicts to be fastest.
};

/// What a user asks for, for one tensor:
///
///     none   fp16   bf16   auto   auto(DENSITY,WORD,...)   topk(DENSITY,WORD,...)
///     block_topk(DENSITY,WORD,...)   block_topk(DENSITY,BLOCK,WORD,...)
///
/// DENSITY is the share of elements that is sent, above 0 and up to 1. BLOCK is how many elements
/// are chosen together, a multiple of 16 up to 65536 (256). The words, in any order:
///
///     fp32 fp16 bf16           of the values on the wire (fp16)
///     dgc  dgc=MOMENTUM        momentum corrected on each rank, 0.9; the optimizer's must be off
///     warmup=STEPS             so many steps are dense at first (0)
///     ramp=STEPS               then the density falls from 25 % to DENSITY in so many (0)
///     nofeedback               forgets what is not sent, to see what error feedback is worth
///     rule=quota|exact|lossless              which sums come back (quota), see `QuotaRule`
///     route=auto|allgather|owners|logstep    how they travel (auto), see `ExchangeRoute`
///     scope=nodes|flat         who exchanges pairs (nodes), see `SparseScope`
///
/// Blocks have no rule, and their route is owners unless it is logstep.
struct CompressionSpec {
  CompressionMethod method = CompressionMethod::kNone;
  double density = 0.01;  ///< kTopK, kBlockTopK and what kAuto may choose; so are all that follow.
  std::size_t block = kUsualBlock;  ///< Elements; kBlockTopK only.
  DType wire = DType::kFloat16;     ///< Of the values.
  float momentum = 0;               ///< Above 0: corrected on each rank.
  std::size_t warmup = 0;           ///< Dense steps.
  std::size_t ramp = 0;             ///< Steps of falling density behind them.
  bool feedback = true;             ///< Off: what is not sent is lost.
  QuotaRule rule = QuotaRule::kQuota;
  std::optional<ExchangeRoute> route = std::nullopt;  ///< Empty: what the chooser takes.
  SparseScope scope = SparseScope::kBetweenNodes;

  /// Errors: KoloError(kConfig) that names the text and what is wrong with it.
  static CompressionSpec parse(std::string_view text);
  /// As `parse` takes it, without what is at its default: equal specs give equal texts.
  std::string to_string() const;

  /// What becomes of it for one tensor: biases, norms and other small tensors travel dense, since
  /// they are sensitive, and cost little.
  CompressionSpec for_tensor(std::size_t count, std::size_t dimensions) const;
  static constexpr std::size_t kSmallestSparse = 4096;
  static constexpr std::size_t kUsualBlock = 256;

  /// Whether it can lead to residuals.
  bool may_be_sparse() const {
    return method == CompressionMethod::kTopK || method == CompressionMethod::kBlockTopK ||
           method == CompressionMethod::kAuto;
  }
  /// Whether the chooser has a say in it.
  bool leaves_choices() const {
    return method == CompressionMethod::kAuto || (method == CompressionMethod::kTopK && !route);
  }
  /// The steps before DENSITY is reached.
  WarmUp warm_up() const;

  friend bool operator==(const CompressionSpec&, const CompressionSpec&) = default;
};

}  // namespace kolo
