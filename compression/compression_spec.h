#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/base/dtype.h"
#include "compression/sparse_all_reduce.h"
#include "compression/sparse_exchange.h"

namespace kolo {

/// How the gradients of a tensor are sent.
enum class CompressionMethod : std::uint8_t {
  kNone,      ///< Dense, in the tensor's dtype or in that of the set's wire.
  kFloat16,   ///< Dense, 16-bit on the wire.
  kBFloat16,  ///< Dense, 16-bit on the wire.
  kTopK,      ///< The largest values, with error feedback.
  kAuto,      ///< The one of these that the chooser predicts to be fastest.
};

/// The compression that a user asks for, for one tensor:
///
///     none   fp16   bf16   auto   auto(DENSITY,SETTING,...)   topk(DENSITY,SETTING,...)
///
/// DENSITY is the share of elements that is sent, above 0 and up to 1. The settings, in any order,
/// with defaults in parentheses:
///
///     fp32 fp16 bf16           dtype of the values on the wire (fp16)
///     dgc  dgc=MOMENTUM        momentum correction on each rank, 0.9; turn the optimizer's off
///     warmup=STEPS             number of dense steps at the start (0)
///     ramp=STEPS               steps in which the density then falls from 25 % to DENSITY (0)
///     nofeedback               no residuals, to measure the effect of error feedback
///     rule=quota|lossless                    which sums come back (quota), see `QuotaRule`
///     route=auto|allgather|owners|logstep    path of the pairs (auto), see `ExchangeRoute`
///     scope=nodes|flat         which ranks exchange pairs (nodes), see `SparseScope`
struct CompressionSpec {
  CompressionMethod method = CompressionMethod::kNone;
  double density = 0.01;         ///< For kTopK and the choices of kAuto, as all members below.
  DType wire = DType::kFloat16;  ///< Dtype of values on the wire.
  float momentum = 0;            ///< Above 0: momentum correction on each rank.
  std::size_t warmup = 0;        ///< Number of dense steps.
  std::size_t ramp = 0;          ///< Steps of falling density after the warm-up.
  bool feedback = true;          ///< False: values that are not sent are lost.
  QuotaRule rule = QuotaRule::kQuota;
  std::optional<ExchangeRoute> route = std::nullopt;  ///< Empty: the chooser decides.
  SparseScope scope = SparseScope::kBetweenNodes;

  /// Errors: KoloError(kConfig) naming the text and its mistake.
  static CompressionSpec parse(std::string_view text);
  /// The text that `parse` takes, without settings at their defaults; equal specs give equal texts.
  std::string to_string() const;

  /// The spec that applies to one tensor: biases, norms and other small tensors are sent dense,
  /// because they are sensitive and cost little.
  CompressionSpec for_tensor(std::size_t count, std::size_t dimensions) const;
  static constexpr std::size_t kSmallestSparse = 4096;

  /// True if it can lead to residuals.
  bool may_be_sparse() const {
    return method == CompressionMethod::kTopK || method == CompressionMethod::kAuto;
  }
  /// True if it leaves a decision to the chooser.
  bool leaves_choices() const {
    return method == CompressionMethod::kAuto || (method == CompressionMethod::kTopK && !route);
  }
  /// The steps before DENSITY is reached.
  WarmUp warm_up() const;

  friend bool operator==(const CompressionSpec&, const CompressionSpec&) = default;
};

/// The methods, for help; their settings follow there.
inline constexpr std::string_view kCompressionForms =
    "none, fp16, bf16, topk(DENSITY,SETTING,...) or auto";

/// Specs by tensor name: `PATTERN=SPEC,PATTERN=SPEC,...`, or one SPEC for all. `*` stands for any
/// characters and `?` for one. The first matching rule wins; a tensor that no rule matches is not
/// compressed.
class CompressionRules {
 public:
  /// Errors: KoloError(kConfig) naming the rule and its mistake.
  static CompressionRules parse(std::string_view text);
  std::string to_string() const;

  CompressionSpec spec_of(std::string_view tensor) const;

  /// True if some rule leaves a decision to the chooser.
  bool leave_choices() const;

 private:
  struct Rule {
    std::string pattern;
    CompressionSpec spec;
  };
  std::vector<Rule> rules_;
};

/// True if a whole name matches a pattern of `*` and `?`. Pure.
bool matches(std::string_view pattern, std::string_view name);

}  // namespace kolo
