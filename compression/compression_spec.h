#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/base/dtype.h"
#include "compression/compression_method.h"
#include "compression/sparse_all_reduce.h"
#include "compression/sparse_exchange.h"

namespace kolo {

/// The compression that a user requests for one tensor: METHOD or METHOD(DENSITY,SETTING,...), as
/// listed by `compression_help`.
struct CompressionSpec {
  const CompressionMethod* method = &methods::none;
  double density = 0.01;         ///< Share of elements that is sent, above 0 and up to 1.
  DType wire = DType::kFloat16;  ///< Dtype of values on the wire.
  float momentum = 0;            ///< Above 0: momentum correction on each rank.
  std::size_t warmup = 0;        ///< Number of dense steps.
  std::size_t ramp = 0;          ///< Number of steps of falling density after the warm-up.
  bool feedback = true;          ///< False: values that are not sent are lost.
  QuotaRule rule = QuotaRule::kQuota;
  std::optional<ExchangeRoute> route = std::nullopt;  ///< Empty: the chooser decides.
  SparseScope scope = SparseScope::kBetweenNodes;

  /// Errors: KoloError(kConfig) naming the text and its mistake.
  static CompressionSpec parse(std::string_view text);
  /// The text that `parse` accepts, without settings at their defaults; equal specs give equal
  /// texts.
  std::string to_string() const;

  /// The spec that applies to one tensor: biases, norms and other small tensors are sent dense,
  /// because they are sensitive and cost little.
  CompressionSpec for_tensor(std::size_t count, std::size_t dimensions) const;
  static constexpr std::size_t kSmallestSparse = 4096;

  /// True if the method uses a compressed bucket.
  bool has_codec() const { return method->make_codec != nullptr; }
  /// True if only a part of the elements is sent, once dense steps are over.
  bool is_sparse() const { return has_codec() && method->takes_density; }
  /// True if the chooser decides on the method.
  bool is_open() const { return method->is_open; }
  bool leaves_choices() const { return is_open() || (has_codec() && !route); }
  /// True if the method uses a compressed bucket, or may do so.
  bool may_be_coded() const { return has_codec() || is_open(); }
  /// The steps before the density is reached.
  WarmUp warm_up() const;

  friend bool operator==(const CompressionSpec&, const CompressionSpec&) = default;
};

/// Methods and settings, for help.
std::string compression_help();

/// Specs by tensor name: `PATTERN=SPEC,PATTERN=SPEC,...`, or one SPEC for all. `*` stands for any
/// characters and `?` for one. The first matching rule wins; a tensor that no rule matches is not
/// compressed.
class CompressionRules {
 public:
  /// Errors: KoloError(kConfig) naming the rule and its mistake.
  static CompressionRules parse(std::string_view text);
  std::string to_string() const;

  CompressionSpec spec_of(std::string_view tensor) const;

  struct Rule {
    std::string pattern;
    CompressionSpec spec;
  };
  /// In order; a spec for all tensors has the pattern "*".
  const std::vector<Rule>& rules() const { return rules_; }
  /// True if some rule's spec satisfies `is_such`.
  bool any(bool (CompressionSpec::*is_such)() const) const;

 private:
  std::vector<Rule> rules_;
};

/// True if the whole name matches a pattern of `*` and `?`. Pure.
bool matches(std::string_view pattern, std::string_view name);

}  // namespace kolo
