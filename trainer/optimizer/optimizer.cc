#include "trainer/optimizer/optimizer.h"

#include <fnmatch.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>

#include "trainer/errors.h"

namespace kolo::trainer {
namespace {

/// Returns the first rule that matches the parameter, or the end if there is none.
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

LrScheduleEntry cosine_schedule() {
  return {.name = "cosine", .help = "half a cosine", .fall = [](double progress) {
            return 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
          }};
}

LrScheduleEntry linear_schedule() {
  return {.name = "linear", .help = "a straight line", .fall = [](double progress) {
            return 1.0 - progress;
          }};
}

LrScheduleEntry step_schedule() {
  return {.name = "step",
          .help = "to a tenth after half of the steps, to a hundredth after three quarters",
          .fall = [](double progress) {
            return progress < 0.5 ? 1.0 : progress < 0.75 ? 0.1 : 0.01;
          }};
}

LrScheduleEntry constant_schedule() {
  return {.name = "constant", .help = "no fall", .fall = [](double) { return 1.0; }};
}

float LrSchedule::at(std::size_t step) const {
  if (step < warmup_steps) {
    return peak_lr * static_cast<float>(step + 1) / static_cast<float>(warmup_steps);
  }
  // The fall ends in the last step, even if the warm-up takes all steps.
  const double progress = step + 1 >= total_steps
                              ? 1.0
                              : static_cast<double>(step - warmup_steps) /
                                    static_cast<double>(total_steps - 1 - warmup_steps);
  return final_lr + (peak_lr - final_lr) * static_cast<float>(fall(progress));
}

}  // namespace kolo::trainer
