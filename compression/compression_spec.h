#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/base/dtype.h"
#include "compression/compression_method.h"
#include "compression/sparse_all_reduce.h"
#include "compression/sparse_exchange.h"

namespace kolo {

/// The compression that a user requests for one tensor, as text METHOD or METHOD(SETTING,...). The
/// density or threshold of a method that has one precedes the settings; see `compression_help`.
struct CompressionSpec {
  const CompressionMethod* method = &methods::none;
  double density = 0.01;         ///< Share of elements to send, in (0, 1].
  float threshold = 0.5f;        ///< Magnitude from which a value is sent, above 0.
  std::size_t matrix_rank = 4;   ///< Columns of the factors that approximate a gradient, above 0.
  DType wire = DType::kFloat16;  ///< Dtype of values in messages to owners, or of uncoded sums.
  float momentum = 0;            ///< Factor of momentum correction; 0 means none.
  std::size_t warmup = 0;        ///< Number of dense steps at the start.
  std::size_t ramp = 0;          ///< Number of steps with falling density after the dense steps.
  bool feedback = true;          ///< If false, values that are not sent are lost.
  QuotaRule rule = QuotaRule::kQuota;
  std::optional<ExchangeRoute> route = std::nullopt;  ///< If empty, the chooser decides.
  SparseScope scope = SparseScope::kBetweenNodes;

  /// Errors: KoloError(kConfig) that names the text and its mistake.
  static CompressionSpec parse(std::string_view text);
  /// Returns a text that `parse` accepts, without settings that have their default. Equal specs
  /// give equal texts.
  std::string to_string() const;

  /// Returns the spec that applies to one tensor: biases, norms and other small tensors are sent
  /// dense, because they are sensitive to compression and cost little. So are tensors whose factors
  /// would have more than half as many numbers.
  CompressionSpec for_tensor(std::span<const std::size_t> shape) const;
  static constexpr std::size_t kSmallestSparse = 4096;

  /// True if the method uses a compressed bucket.
  bool has_codec() const { return method->make_codec != nullptr; }
  /// True if a step sends only a part of the gradients after the dense steps.
  bool is_sparse() const { return has_codec() && !method->is_close; }
  /// True if the chooser decides which method is used.
  bool is_open() const { return method->is_open; }
  bool leaves_choices() const { return is_open() || (has_codec() && !route); }
  /// True if the method uses a compressed bucket, or the chooser may choose one.
  bool may_be_coded() const { return has_codec() || is_open(); }
  /// Returns the dense steps and the densities before `density` applies.
  WarmUp warm_up() const;

  friend bool operator==(const CompressionSpec&, const CompressionSpec&) = default;
};

/// Returns a text that lists all methods and settings.
std::string compression_help();

/// Maps tensor names to specs: `PATTERN=SPEC,PATTERN=SPEC,...`, or one SPEC for all tensors. In a
/// pattern, `*` matches any characters and `?` matches one. The first rule that matches is used; a
/// tensor without a matching rule is not compressed.
class CompressionRules {
 public:
  /// Errors: KoloError(kConfig) that names the rule and its mistake.
  static CompressionRules parse(std::string_view text);
  std::string to_string() const;

  CompressionSpec spec_of(std::string_view tensor) const;

  struct Rule {
    std::string pattern;
    CompressionSpec spec;
  };
  /// The rules in their order; a spec for all tensors has the pattern "*".
  const std::vector<Rule>& rules() const { return rules_; }
  /// True if `is_such` is true for the spec of some rule.
  bool any(bool (CompressionSpec::*is_such)() const) const;

 private:
  std::vector<Rule> rules_;
};

/// True if `pattern` with `*` and `?` matches the whole name. Pure.
bool matches(std::string_view pattern, std::string_view name);

}  // namespace kolo
