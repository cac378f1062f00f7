#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace kolo {

/// How a tensor's gradients travel.
enum class CompressionMethod {
  kNone,      ///< In the tensor's dtype.
  kFloat16,   ///< Dense, 16-bit on the wire.
  kBFloat16,  ///< Dense, 16-bit on the wire.
  kTopK,      ///< The largest, with error feedback.
  kAuto,      ///< Whichever of these the chooser predicts to be fastest.
};

/// What a user asks for: `none`, `fp16`, `bf16`, `topk(DENSITY)`, `auto` or `auto(DENSITY)`.
struct CompressionSpec {
  CompressionMethod method = CompressionMethod::kNone;
  double density = 0.01;  ///< kTopK, and what kAuto may choose.

  /// Errors: KoloError(kConfig) that names the text and what is wrong with it.
  static CompressionSpec parse(std::string_view text);
  std::string to_string() const;

  /// What becomes of it for one tensor: biases, norms and other small tensors travel dense, since
  /// they are sensitive, and cost little.
  CompressionSpec for_tensor(std::size_t count, std::size_t dimensions) const;
  static constexpr std::size_t kSmallestSparse = 4096;

  friend bool operator==(const CompressionSpec&, const CompressionSpec&) = default;
};

/// Specs by tensor name: `PATTERN=SPEC,PATTERN=SPEC,...`, or one SPEC for all. `*` stands for any
/// characters and `?` for one. The first rule that matches wins; a tensor that none matches is not
/// compressed.
class CompressionRules {
 public:
  /// Errors: KoloError(kConfig) that names the rule and what is wrong with it.
  static CompressionRules parse(std::string_view text);
  std::string to_string() const;

  CompressionSpec spec_of(std::string_view tensor) const;

 private:
  struct Rule {
    std::string pattern;
    CompressionSpec spec;
  };
  std::vector<Rule> rules_;
};

/// Whether a whole name fits a pattern of `*` and `?`. Pure.
bool matches(std::string_view pattern, std::string_view name);

}  // namespace kolo
