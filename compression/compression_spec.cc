#include "compression/compression_spec.h"

#include <charconv>
#include <optional>

#include <fmt/format.h>

#include "comm/base/error.h"

namespace kolo {
namespace {

[[noreturn]] void fail(std::string_view text, const std::string& what) {
  throw KoloError(
      {.code = ErrorCode::kConfig, .what = fmt::format("compression '{}': {}", text, what)});
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

double parse_density(std::string_view text, std::string_view number) {
  number = trimmed(number);
  double density = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), density);
  if (error != std::errc() || end != number.data() + number.size()) {
    fail(text, fmt::format("'{}' is not a number", number));
  }
  if (!(density > 0 && density <= 1)) {
    fail(text, fmt::format("density {} does not lie above 0 and up to 1", number));
  }
  return density;
}

}  // namespace

CompressionSpec CompressionSpec::parse(std::string_view text) {
  const std::string_view whole = trimmed(text);
  const std::size_t open = whole.find('(');
  const std::string_view name = trimmed(whole.substr(0, open));
  std::optional<double> density;
  if (open != std::string_view::npos) {
    if (whole.back() != ')') fail(text, "a ')' is missing at the end");
    density = parse_density(text, whole.substr(open + 1, whole.size() - open - 2));
  }
  CompressionSpec spec;
  if (name == "topk" || name == "auto") {
    spec.method = name == "topk" ? CompressionMethod::kTopK : CompressionMethod::kAuto;
    if (name == "topk" && !density) fail(text, "topk needs a density, as in topk(0.01)");
    spec.density = density.value_or(spec.density);
    return spec;
  }
  if (name == "fp16") {
    spec.method = CompressionMethod::kFloat16;
  } else if (name == "bf16") {
    spec.method = CompressionMethod::kBFloat16;
  } else if (name != "none") {
    fail(text, "there are none, fp16, bf16, topk(DENSITY) and auto");
  }
  if (density) fail(text, fmt::format("{} has no density", name));
  return spec;
}

std::string CompressionSpec::to_string() const {
  switch (method) {
    case CompressionMethod::kNone:
      return "none";
    case CompressionMethod::kFloat16:
      return "fp16";
    case CompressionMethod::kBFloat16:
      return "bf16";
    case CompressionMethod::kTopK:
      return fmt::format("topk({})", density);
    case CompressionMethod::kAuto:
      return fmt::format("auto({})", density);
  }
  return "";
}

CompressionSpec CompressionSpec::for_tensor(std::size_t count, std::size_t dimensions) const {
  const bool may_be_sparse =
      method == CompressionMethod::kTopK || method == CompressionMethod::kAuto;
  if (may_be_sparse && (count < kSmallestSparse || dimensions < 2)) return {};
  return *this;
}

CompressionRules CompressionRules::parse(std::string_view text) {
  CompressionRules rules;
  for (std::string_view left = text;;) {
    const std::size_t comma = left.find(',');
    const std::string_view rule = trimmed(left.substr(0, comma));
    if (rule.empty()) fail(text, "a rule is empty");
    const std::size_t equals = rule.rfind('=');
    const bool for_all = equals == std::string_view::npos;
    const std::string_view pattern = for_all ? "*" : trimmed(rule.substr(0, equals));
    if (pattern.empty()) fail(rule, "a rule without a pattern before '='");
    rules.rules_.push_back(
        {.pattern = std::string(pattern),
         .spec = CompressionSpec::parse(for_all ? rule : rule.substr(equals + 1))});
    if (comma == std::string_view::npos) return rules;
    left.remove_prefix(comma + 1);
  }
}

std::string CompressionRules::to_string() const {
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

bool matches(std::string_view pattern, std::string_view name) {
  // Where to go on if what follows the last `*` does not fit: let it stand for one character more.
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
