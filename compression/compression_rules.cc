#include "compression/compression_rules.h"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>

#include "comm/base/error.h"
#include "comm/base/text.h"

namespace kolo {
namespace {

[[noreturn]] void fail(std::string_view text, std::string_view what) {
  throw KoloError(
      {.code = ErrorCode::kConfig, .what = fmt::format("compression '{}': {}", text, what)});
}

/// The text up to the first `separator` outside parentheses, or all of it.
std::size_t find_outside_brackets(std::string_view text, char separator) {
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '(') ++depth;
    if (text[i] == ')') --depth;
    if (text[i] == separator && depth == 0) return i;
  }
  return std::string_view::npos;
}

}  // namespace

CompressionRules CompressionRules::parse(std::string_view text) {
  CompressionRules rules;
  for (std::string_view left = text;;) {
    const std::size_t comma = find_outside_brackets(left, ',');
    const std::string_view rule = trimmed(left.substr(0, comma));
    if (rule.empty()) fail(text, "one rule is empty; remove the extra comma");
    const std::size_t equals = find_outside_brackets(rule, '=');
    const bool for_all = equals == std::string_view::npos;
    const std::string_view pattern = for_all ? "*" : trimmed(rule.substr(0, equals));
    if (pattern.empty()) fail(rule, "a rule has no name pattern before '='");
    rules.rules_.push_back(
        {.pattern = std::string(pattern),
         .spec = CompressionSpec::parse(for_all ? rule : rule.substr(equals + 1))});
    if (comma == std::string_view::npos) return rules;
    left.remove_prefix(comma + 1);
  }
}

std::string CompressionRules::to_string() const {
  if (rules_.size() == 1 && rules_[0].pattern == "*") return rules_[0].spec.to_string();
  std::string text;
  for (const Rule& rule : rules_) {
    if (!text.empty()) text += ',';
    text += rule.pattern + '=' + rule.spec.to_string();
  }
  return text;
}

CompressionSpec CompressionRules::spec_of(std::string_view tensor) const {
  for (const Rule& rule : rules_) {
    if (matches(rule.pattern, tensor)) return rule.spec;
  }
  return {};
}

bool CompressionRules::leave_choices() const {
  return std::ranges::any_of(rules_, [](const Rule& rule) { return rule.spec.leaves_choices(); });
}

bool matches(std::string_view pattern, std::string_view name) {
  // Where to resume if the text after the last `*` does not match: the `*` then takes one more
  // character.
  std::size_t p = 0, n = 0;
  std::size_t after_star = std::string_view::npos;
  std::size_t star_end = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      after_star = ++p;
      star_end = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (after_star != std::string_view::npos) {
      p = after_star;
      n = ++star_end;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

}  // namespace kolo
