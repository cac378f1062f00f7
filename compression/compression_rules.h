#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compression/compression_spec.h"

namespace kolo {

/// Specs by tensor name: `PATTERN=SPEC,PATTERN=SPEC,...`, or one SPEC for all. `*` stands for any
/// characters and `?` for one. The first rule that matches wins; a tensor that none matches is not
/// compressed.
class CompressionRules {
 public:
  /// Errors: KoloError(kConfig) that names the rule and what is wrong with it.
  static CompressionRules parse(std::string_view text);
  std::string to_string() const;

  CompressionSpec spec_of(std::string_view tensor) const;

  /// Whether any rule leaves it to the chooser how tensors travel.
  bool leave_choices() const;

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
