#include "trainer/optimizer/optimizer.h"

#include <fnmatch.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>

#include "trainer/config_error.h"

namespace kolo::trainer {
namespace {

/// The first that fits; the end if there is none.
std::vector<DecayRule>::const_iterator rule_of(const Parameter& parameter,
                                               const std::vector<DecayRule>& rules) {
  return std::ranges::find_if(rules, [&](const DecayRule& rule) {
    return ::fnmatch(rule.pattern.c_str(), parameter.name().c_str(), 0) == 0;
  });
}

float decay_of(const Parameter& parameter, const OptimizerOptions& options) {
  const auto rule = rule_of(parameter, options.decay_rules);
  if (rule != options.decay_rules.end()) return rule->weight_decay;
  return decays(parameter) ? options.weight_decay : 0.0f;
}

}  // namespace

Optimizer::Optimizer(ParameterSet& parameters, const OptimizerOptions& options)
    : parameters_(parameters), options_(options) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    weight_decay_.push_back(decay_of(parameters[i], options));
  }
}

Tensor Optimizer::make_state(const Parameter& parameter) {
  return Tensor(parameter.is_sharded() ? Shape{parameter.owned().count} : parameter.shape());
}

void Optimizer::visit_elements(StateVisitor& visitor, std::string_view prefix,
                               const Parameter& parameter, Tensor& state) {
  const std::string name = std::string(prefix) + "/" + parameter.name();
  if (parameter.is_sharded()) {
    visitor.shard(name, parameter.shape(), parameter.owned().begin, state.span());
  } else {
    visitor.shared(name, parameter.shape(), state.span());
  }
}

void Optimizer::require_no_rows(std::string_view name) const {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].rows() == nullptr) continue;
    throw_config_error("--optimizer " + std::string(name) + ": the gradient of '" +
                       parameters_[i].name() +
                       "' is rows of a table, and it takes norms of whole tensors; add "
                       "--row-gradients off, or choose sgd or adamw");
  }
}

std::vector<std::string> unused_rules(const std::vector<DecayRule>& rules,
                                      const ParameterSet& parameters) {
  std::vector<bool> is_used(rules.size() + 1);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    is_used[static_cast<std::size_t>(rule_of(parameters[i], rules) - rules.begin())] = true;
  }
  std::vector<std::string> patterns;
  for (std::size_t i = 0; i < rules.size(); ++i) {
    if (!is_used[i]) patterns.push_back(rules[i].pattern);
  }
  return patterns;
}

std::vector<DecayRule> parse_decay_rules(std::string_view text) {
  std::vector<DecayRule> rules;
  while (!text.empty()) {
    const std::string_view rule = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), rule.size() + 1));
    const std::size_t equals = rule.rfind('=');
    float decay = -1.0f;
    if (equals != std::string_view::npos && equals > 0) {
      const std::string_view number = rule.substr(equals + 1);
      const char* const end = number.data() + number.size();
      if (std::from_chars(number.data(), end, decay).ptr != end) decay = -1.0f;
    }
    if (!(decay >= 0.0f) || !std::isfinite(decay)) {
      throw_config_error("--decay-rules: '" + std::string(rule) +
                         "' is not PATTERN=NUMBER with a number of at least 0");
    }
    rules.push_back({std::string(rule.substr(0, equals)), decay});
  }
  return rules;
}

}  // namespace kolo::trainer
