#include "compression/compression_spec.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/base/error.h"
#include "comm/base/nearest_name.h"
#include "comm/base/text.h"

namespace kolo {
namespace {

[[noreturn]] void fail(std::string_view text, std::string_view what) {
  throw KoloError(
      {.code = ErrorCode::kConfig, .what = fmt::format("compression '{}': {}", text, what)});
}

[[noreturn]] void fail_unknown(std::string_view text, std::string_view name,
                               const std::vector<std::string>& names) {
  throw UsageError(fmt::format("compression '{}': {}", text, describe_unknown(name, names)));
}

template <typename Number>
Number read_number(std::string_view text, std::string_view number) {
  Number value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (error != std::errc() || end != number.data() + number.size()) {
    fail(text, fmt::format("'{}' is not a number", number));
  }
  return value;
}

/// A setting that may follow the density: a fixed text, or a text that ends with a number.
struct Setting {
  std::string_view name;   ///< Such as "rule="; empty if `value` is the whole text.
  std::string_view value;  ///< Such as "quota" or "STEPS".
  /// Returns false if `argument` is not this setting. Errors quote the whole `text`.
  std::function<bool(CompressionSpec&, std::string_view text, std::string_view argument)> read;
  /// Returns an empty text if the setting has its default.
  std::function<std::string(const CompressionSpec&)> print;
};

template <typename Value>
Setting word(std::string_view name, std::string_view value, Value CompressionSpec::*field,
             Value meaning) {
  const std::string text = fmt::format("{}{}", name, value);
  return {.name = name,
          .value = value,
          .read =
              [=](auto& spec, auto, auto argument) {
                if (argument == text) spec.*field = meaning;
                return argument == text;
              },
          .print =
              [=](const auto& spec) {
                const bool is_set = spec.*field == meaning && meaning != CompressionSpec().*field;
                return is_set ? text : std::string();
              }};
}

Setting steps(std::string_view name, std::string_view value, std::size_t CompressionSpec::*field) {
  return {.name = name,
          .value = value,
          .read =
              [=](auto& spec, auto text, auto argument) {
                if (!argument.starts_with(name)) return false;
                spec.*field = read_number<std::size_t>(text, argument.substr(name.size()));
                return true;
              },
          .print =
              [=](const auto& spec) {
                return spec.*field > 0 ? fmt::format("{}{}", name, spec.*field) : std::string();
              }};
}

bool read_momentum(CompressionSpec& spec, std::string_view text, std::string_view argument) {
  if (argument != "dgc" && !argument.starts_with("dgc=")) return false;
  const std::string_view value = argument == "dgc" ? "0.9" : argument.substr(4);
  spec.momentum = read_number<float>(text, value);
  if (spec.momentum > 0 && spec.momentum < 1) return true;
  fail(text, fmt::format("momentum {} is not between 0 and 1", value));
}

/// All settings, in the order in which a printed spec names them; those of one name are adjacent.
const std::vector<Setting>& settings() {
  using Spec = CompressionSpec;
  using Route = std::optional<ExchangeRoute>;
  static const std::vector<Setting> all = {
      word("", "fp32", &Spec::wire, DType::kFloat32),
      word("", "fp16", &Spec::wire, DType::kFloat16),
      word("", "bf16", &Spec::wire, DType::kBFloat16),
      {.name = "dgc",
       .value = "[=MOMENTUM]",
       .read = read_momentum,
       .print =
           [](const auto& spec) {
             return spec.momentum > 0 ? fmt::format("dgc={}", spec.momentum) : std::string();
           }},
      steps("warmup=", "STEPS (dense)", &Spec::warmup),
      steps("ramp=", "STEPS (falling density)", &Spec::ramp),
      word("", "nofeedback", &Spec::feedback, false),
      word("rule=", "quota", &Spec::rule, QuotaRule::kQuota),
      word("rule=", "lossless", &Spec::rule, QuotaRule::kLossless),
      word("route=", "auto", &Spec::route, Route()),
      word("route=", "allgather", &Spec::route, Route(ExchangeRoute::kAllGather)),
      word("route=", "owners", &Spec::route, Route(ExchangeRoute::kPairwise)),
      word("scope=", "nodes", &Spec::scope, SparseScope::kBetweenNodes),
      word("scope=", "flat", &Spec::scope, SparseScope::kFlat)};
  return all;
}

void read_method(CompressionSpec& spec, std::string_view text, std::string_view name) {
  std::vector<std::string> names;
  for (const CompressionMethod* method : compression_methods()) {
    if (method->name == name) {
      spec.method = method;
      return;
    }
    names.emplace_back(method->name);
  }
  fail_unknown(text, name, names);
}

void read_density(CompressionSpec& spec, std::string_view text, std::string_view argument) {
  spec.density = read_number<double>(text, argument);
  if (!(spec.density > 0 && spec.density <= 1)) {
    fail(text, fmt::format("density {} is not greater than 0 and at most 1", argument));
  }
}

void read_threshold(CompressionSpec& spec, std::string_view text, std::string_view argument) {
  spec.threshold = read_number<float>(text, argument);
  if (!(spec.threshold > 0 && std::isfinite(spec.threshold))) {
    fail(text, fmt::format("threshold {} is not a number greater than 0", argument));
  }
}

void read_rank(CompressionSpec& spec, std::string_view text, std::string_view argument) {
  spec.matrix_rank = read_number<std::size_t>(text, argument);
  if (spec.matrix_rank == 0) fail(text, "a rank is at least 1");
}

/// Throws an error for a setting that has no meaning for the spec's method.
void check_settings(const CompressionSpec& spec, std::string_view text) {
  if (!spec.method->needs_owners) return;
  if (spec.route == ExchangeRoute::kAllGather) {
    fail(text, "sums are made by their owners: choose route=owners");
  }
  if (spec.ramp > 0) fail(text, "ramp= is for methods with a density; warmup= is for all");
  if (!spec.method->codes_sums) {
    if (spec.rule == CompressionSpec().rule && spec.wire == CompressionSpec().wire) return;
    fail(text,
         "factors are sent in float32, and all of their sums come back: leave out dtype and "
         "rule=");
  }
  if (spec.wire != CompressionSpec().wire && spec.rule != QuotaRule::kLossless) {
    fail(text, fmt::format("{} would be the dtype of sums, which come back as codes; add "
                           "rule=lossless",
                           kolo::to_string(spec.wire)));
  }
}

void read_setting(CompressionSpec& spec, std::string_view text, std::string_view argument) {
  const std::size_t equals = argument.find('=');
  const std::string_view name = trimmed(argument.substr(0, equals));
  std::string whole(name);
  if (equals != std::string_view::npos) whole += '=';
  const std::string prefix = whole;
  if (equals != std::string_view::npos) whole += trimmed(argument.substr(equals + 1));
  std::vector<std::string> names, values;
  for (const Setting& setting : settings()) {
    if (setting.read(spec, text, whole)) return;
    const std::string own(setting.name.empty() ? setting.value : setting.name);
    if (names.empty() || names.back() != own) names.push_back(own);
    if (own == prefix) values.push_back(own + std::string(setting.value));
  }
  values.empty() ? fail_unknown(text, prefix, names) : fail_unknown(text, whole, values);
}

/// Returns the position of the first `separator` outside parentheses; npos if there is none.
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

CompressionSpec CompressionSpec::parse(std::string_view text) {
  CompressionSpec spec;
  const std::string_view whole = trimmed(text);
  const std::size_t open = whole.find('(');
  read_method(spec, text, trimmed(whole.substr(0, open)));
  const CompressionMethod& method = *spec.method;
  if (open == std::string_view::npos) {
    if (!method.takes_density || method.is_open) return spec;
    fail(text, fmt::format("{0} needs a density, as in {0}(0.01)", method.name));
  }
  if (!spec.may_be_coded()) fail(text, fmt::format("{} takes no settings", method.name));
  if (whole.back() != ')') fail(text, "the closing ')' is missing");
  std::string_view left = whole.substr(open + 1, whole.size() - open - 2);
  auto* read = method.takes_density     ? read_density
               : method.takes_threshold ? read_threshold
               : method.takes_rank      ? read_rank
                                        : read_setting;
  for (;; read = read_setting) {
    const std::size_t comma = left.find(',');
    read(spec, text, trimmed(left.substr(0, comma)));
    if (comma == std::string_view::npos) break;
    left.remove_prefix(comma + 1);
  }
  check_settings(spec, text);
  return spec;
}

std::string CompressionSpec::to_string() const {
  std::vector<std::string> texts;
  if (method->takes_density) texts.push_back(fmt::format("{}", density));
  if (method->takes_threshold) texts.push_back(fmt::format("{}", threshold));
  if (method->takes_rank) texts.push_back(fmt::format("{}", matrix_rank));
  for (const Setting& setting : settings()) {
    if (std::string text = setting.print(*this); !text.empty()) texts.push_back(std::move(text));
  }
  if (!may_be_coded() || texts.empty()) return std::string(method->name);
  return fmt::format("{}({})", method->name, fmt::join(texts, ","));
}

std::string compression_help() {
  std::string text;
  for (const CompressionMethod* method : compression_methods()) {
    if (!text.empty()) text += method == compression_methods().back() ? " or " : ", ";
    text += method->name;
    if (method->takes_density && !method->is_open) text += "(DENSITY,SETTING,...)";
    if (method->takes_threshold) text += "(THRESHOLD,SETTING,...)";
    if (method->takes_rank) text += "(RANK,SETTING,...)";
  }
  text +=
      "; or rules by name with * and ?, of which the first match counts, e.g. "
      "'*.bias=none,*=topk(0.01)'. DENSITY: share of elements that is sent, above 0 and up to 1. "
      "THRESHOLD: magnitude from which a value is sent, 0.5 if left out. RANK: columns of the "
      "factors that are sent, 4 if left out. SETTING (the first three: dtype of values): ";
  std::string_view last;
  for (const Setting& setting : settings()) {
    const bool goes_on = !setting.name.empty() && setting.name == last;
    if (goes_on) text += '|';
    if (!goes_on && text.back() != ' ') text += ", ";
    text += fmt::format("{}{}", goes_on ? "" : setting.name, setting.value);
    last = setting.name;
  }
  return text;
}

CompressionSpec CompressionSpec::for_tensor(std::span<const std::size_t> shape) const {
  std::size_t count = 1;
  for (const std::size_t extent : shape) count *= extent;
  if (may_be_coded() && (count < kSmallestSparse || shape.size() < 2)) return {};
  if (!method->takes_rank) return *this;
  const std::size_t rows = shape[0], columns = count / rows;
  const std::size_t most = std::min({matrix_rank, rows, columns});
  return 2 * most * (rows + columns) > count ? CompressionSpec() : *this;
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

bool CompressionRules::any(bool (CompressionSpec::*is_such)() const) const {
  return std::ranges::any_of(rules_, [&](const Rule& rule) { return (rule.spec.*is_such)(); });
}

bool matches(std::string_view pattern, std::string_view name) {
  // If the text after the last `*` does not match, matching resumes at `after_star`, and the `*`
  // matches one more character.
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
