#include "compression/compression_spec.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "comm/base/error.h"
#include "comm/base/nearest_name.h"
#include "comm/base/text.h"

namespace kolo {
namespace {

/// The words for values; the table is read in both directions.
template <typename Value, std::size_t kCount>
using Words = std::array<std::pair<std::string_view, Value>, kCount>;

constexpr Words<CompressionMethod, 5> kMethods{{{"none", CompressionMethod::kNone},
                                                {"fp16", CompressionMethod::kFloat16},
                                                {"bf16", CompressionMethod::kBFloat16},
                                                {"topk", CompressionMethod::kTopK},
                                                {"auto", CompressionMethod::kAuto}}};
constexpr Words<DType, 3> kWires{
    {{"fp32", DType::kFloat32}, {"fp16", DType::kFloat16}, {"bf16", DType::kBFloat16}}};
constexpr Words<QuotaRule, 2> kRules{
    {{"quota", QuotaRule::kQuota}, {"lossless", QuotaRule::kLossless}}};
constexpr Words<std::optional<ExchangeRoute>, 4> kRoutes{{{"auto", std::nullopt},
                                                          {"allgather", ExchangeRoute::kAllGather},
                                                          {"owners", ExchangeRoute::kPairwise},
                                                          {"logstep", ExchangeRoute::kLogStep}}};
constexpr Words<SparseScope, 2> kScopes{
    {{"nodes", SparseScope::kBetweenNodes}, {"flat", SparseScope::kFlat}}};

template <typename Value, std::size_t kCount>
bool read_word(const Words<Value, kCount>& words, std::string_view text, Value& value) {
  for (const auto& [word, meaning] : words) {
    if (word != text) continue;
    value = meaning;
    return true;
  }
  return false;
}

template <typename Value, std::size_t kCount>
std::string_view word_of(const Words<Value, kCount>& words, Value value) {
  for (const auto& [word, meaning] : words) {
    if (meaning == value) return word;
  }
  return "";
}

template <typename Value, std::size_t kCount>
std::vector<std::string> names_of(const Words<Value, kCount>& words, std::string_view prefix = "") {
  std::vector<std::string> names;
  for (const auto& [word, meaning] : words) names.push_back(fmt::format("{}{}", prefix, word));
  return names;
}

[[noreturn]] void fail(std::string_view text, std::string_view what) {
  throw KoloError(
      {.code = ErrorCode::kConfig, .what = fmt::format("compression '{}': {}", text, what)});
}

/// Reads one spec; its errors quote the whole of it.
class SpecReader {
 public:
  explicit SpecReader(std::string_view text) : text_(text) {}

  CompressionSpec read() {
    const std::string_view whole = trimmed(text_);
    const std::size_t open = whole.find('(');
    if (!read_word(kMethods, trimmed(whole.substr(0, open)), spec_.method)) {
      fail_unknown(trimmed(whole.substr(0, open)), names_of(kMethods));
    }
    const bool has_arguments = open != std::string_view::npos;
    if (spec_.method == CompressionMethod::kTopK && !has_arguments) {
      fail("topk needs a density, as in topk(0.01)");
    }
    if (!has_arguments) return spec_;
    if (!spec_.may_be_sparse()) {
      fail(fmt::format("{} takes no density", word_of(kMethods, spec_.method)));
    }
    if (whole.back() != ')') fail("the closing ')' is missing");
    read_arguments(whole.substr(open + 1, whole.size() - open - 2));
    return spec_;
  }

 private:
  [[noreturn]] void fail(std::string_view what) const { kolo::fail(text_, what); }

  [[noreturn]] void fail_unknown(std::string_view name,
                                 const std::vector<std::string>& names) const {
    throw UsageError(fmt::format("compression '{}': {}", text_, describe_unknown(name, names)));
  }

  void read_arguments(std::string_view left) {
    for (std::size_t i = 0;; ++i) {
      const std::size_t comma = left.find(',');
      const std::string_view argument = trimmed(left.substr(0, comma));
      if (i == 0) {
        read_density(argument);
      } else {
        read_argument(argument);
      }
      if (comma == std::string_view::npos) return;
      left.remove_prefix(comma + 1);
    }
  }

  void read_density(std::string_view text) {
    spec_.density = number<double>(text);
    if (!(spec_.density > 0 && spec_.density <= 1)) {
      fail(fmt::format("density {} is not greater than 0 and at most 1", text));
    }
  }

  void read_argument(std::string_view argument) {
    if (read_word(kWires, argument, spec_.wire)) return;
    const std::size_t equals = argument.find('=');
    const std::string_view name = trimmed(argument.substr(0, equals));
    const std::string_view value =
        equals == std::string_view::npos ? "" : trimmed(argument.substr(equals + 1));
    if (name == "dgc") {
      spec_.momentum = equals == std::string_view::npos ? 0.9f : number<float>(value);
      if (!(spec_.momentum > 0 && spec_.momentum < 1)) {
        fail(fmt::format("momentum {} is not between 0 and 1", value));
      }
    } else if (name == "warmup") {
      spec_.warmup = number<std::size_t>(value);
    } else if (name == "ramp") {
      spec_.ramp = number<std::size_t>(value);
    } else if (argument == "nofeedback") {
      spec_.feedback = false;
    } else if (name == "rule") {
      read_choice(kRules, "rule=", value, spec_.rule);
    } else if (name == "route") {
      read_choice(kRoutes, "route=", value, spec_.route);
    } else if (name == "scope") {
      read_choice(kScopes, "scope=", value, spec_.scope);
    } else {
      const bool has_value = equals != std::string_view::npos;
      fail_unknown(argument.substr(0, has_value ? equals + 1 : argument.size()),
                   {"fp32", "fp16", "bf16", "dgc", "warmup=", "ramp=", "nofeedback",
                    "rule=", "route=", "scope="});
    }
  }

  template <typename Value, std::size_t kCount>
  void read_choice(const Words<Value, kCount>& words, std::string_view prefix,
                   std::string_view text, Value& value) const {
    if (!read_word(words, text, value)) {
      fail_unknown(fmt::format("{}{}", prefix, text), names_of(words, prefix));
    }
  }

  template <typename Number>
  Number number(std::string_view text) const {
    Number value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) {
      fail(fmt::format("'{}' is not a number", text));
    }
    return value;
  }

  std::string_view text_;
  CompressionSpec spec_;
};

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

CompressionSpec CompressionSpec::parse(std::string_view text) { return SpecReader(text).read(); }

std::string CompressionSpec::to_string() const {
  std::string text(word_of(kMethods, method));
  if (!may_be_sparse()) return text;
  text += fmt::format("({}", density);
  const CompressionSpec defaults;
  if (wire != defaults.wire) text += fmt::format(",{}", word_of(kWires, wire));
  if (momentum > 0) text += fmt::format(",dgc={}", momentum);
  if (warmup > 0) text += fmt::format(",warmup={}", warmup);
  if (ramp > 0) text += fmt::format(",ramp={}", ramp);
  if (!feedback) text += ",nofeedback";
  if (rule != defaults.rule) text += fmt::format(",rule={}", word_of(kRules, rule));
  if (route != defaults.route) text += fmt::format(",route={}", word_of(kRoutes, route));
  if (scope != defaults.scope) text += fmt::format(",scope={}", word_of(kScopes, scope));
  return text + ")";
}

CompressionSpec CompressionSpec::for_tensor(std::size_t count, std::size_t dimensions) const {
  if (may_be_sparse() && (count < kSmallestSparse || dimensions < 2)) return {};
  return *this;
}

WarmUp CompressionSpec::warm_up() const {
  constexpr std::array kStages{0.25, 0.0625, 0.015625, 0.004};
  WarmUp result{.dense_steps = warmup};
  for (const double stage : kStages) {
    if (ramp > 0 && stage > density) result.ramp.push_back(stage);
  }
  if (!result.ramp.empty()) {
    result.steps_per_density = (ramp + result.ramp.size() - 1) / result.ramp.size();
  }
  return result;
}

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
