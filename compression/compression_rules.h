#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compression/compression_spec.h"

namespace kolo {

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
