#include "trainer/loop/compression_rules.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "trainer/errors.h"
#include "trainer/precision/precision.h"

namespace kolo::trainer {
namespace {

constexpr std::string_view kAuto = "auto";

/// What stands between the parentheses of "auto(...)".
std::string_view arguments_of(std::string_view spec) {
  spec.remove_prefix(std::min(spec.size(), kAuto.size() + 1));
  return spec.substr(0, spec.rfind(')'));
}

bool is_auto(const NamedSpec& rule) { return rule.spec == kAuto || rule.spec.starts_with("auto("); }

bool is_top_k(const NamedSpec& rule) { return rule.spec.find("topk(") != std::string::npos; }

bool is_dense(const std::string& compression) {
  return compression.empty() || compression == "none";
}

bool may_be_sparse(const std::string& compression) {
  return compression.find("topk(") != std::string::npos || leave_method_open(compression);
}

DType automatic_dtype(const Config& config, const Options& options) {
  const bool fits = parse_precision(config.precision) == DType::kBFloat16 &&
                    options.device == "cpu" && config.shard == "none" &&
                    is_dense(options.compression) &&
                    options.wire_dtype.value_or(DType::kBFloat16) == DType::kBFloat16;
  return fits ? DType::kBFloat16 : DType::kFloat32;
}

}  // namespace

std::string adaptive_rules(std::string_view rules, const AdaptiveJob& job) {
  const bool is_for_all = rules == kAuto || (rules.starts_with("auto(") && rules.ends_with(')'));
  if (!is_for_all) return std::string(rules);
  std::string arguments(arguments_of(rules));
  if (arguments.empty()) arguments = "0.01";
  if (arguments.find("warmup") == std::string::npos) {
    const std::size_t dense_steps =
        std::max(job.total_steps * 15 / 100, job.warmup_steps + job.warmup_steps / 5);
    arguments += fmt::format(",warmup={}", dense_steps);
  }
  if (arguments.find("rule") == std::string::npos) arguments += ",rule=lossless";
  return fmt::format("embedding*=none,*=auto({})", arguments);
}

std::vector<NamedSpec> split_rules(std::string_view rules) {
  std::vector<NamedSpec> all;
  int depth = 0;
  std::string text;
  std::optional<std::string> pattern;
  const auto end = [&] {
    if (!text.empty()) all.push_back({.pattern = pattern.value_or("*"), .spec = text});
    pattern.reset();
    text.clear();
  };
  for (const char c : rules) {
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (depth == 0 && c == ',') {
      end();
    } else if (depth == 0 && c == '=') {
      pattern = std::exchange(text, {});
    } else if (c != ' ') {
      text += c;
    }
  }
  end();
  return all;
}

bool name_top_k(std::string_view rules) {
  return std::ranges::any_of(split_rules(rules), is_top_k);
}

bool begins_sparse_early(std::string_view rules, std::size_t warmup_steps) {
  constexpr std::string_view kWarmUp = "warmup=";
  return std::ranges::any_of(split_rules(rules), [&](const NamedSpec& rule) {
    if (!is_top_k(rule)) return false;
    const std::size_t place = rule.spec.find(kWarmUp);
    if (place == std::string::npos) return true;
    const char* const number = rule.spec.c_str() + place + kWarmUp.size();
    return std::strtoull(number, nullptr, 10) <= warmup_steps;
  });
}

bool leave_method_open(std::string_view rules) {
  return std::ranges::any_of(split_rules(rules), is_auto);
}

void require_device_compression(const Options& options) {
  if (options.device == "cpu" || options.compression.find("topk(") == std::string::npos) return;
  throw_config_error(
      fmt::format("--compression {}: top-k compresses gradients in host memory, and those of "
                  "--device {} are in the GPU's, where they would be sent dense; choose fp16, bf16 "
                  "or none, or --device cpu",
                  options.compression, options.device));
}

DType gradient_dtype(const Config& config, const Options& options) {
  if (config.gradients == "auto") return automatic_dtype(config, options);
  const DType dtype = parse_gradients(config.gradients);
  if (dtype == DType::kFloat32) return dtype;
  if (options.device != "cpu") {
    throw_config_error(
        fmt::format("--gradients {}: needs --device cpu; on a GPU gradients are float32, and "
                    "--wire {} sends 16 bits",
                    config.gradients, config.gradients));
  }
  if (config.shard != "none") {
    throw_config_error(
        fmt::format("--gradients {} with --shard {}: shards are averaged in float32; choose "
                    "--gradients float32, or --shard none",
                    config.gradients, config.shard));
  }
  if (may_be_sparse(options.compression)) {
    throw_config_error(fmt::format(
        "--gradients {}: --compression {} may send sparse gradients, whose residuals "
        "belong to float32 gradients; choose --gradients float32, or --compression none",
        config.gradients, options.compression));
  }
  return dtype;
}

}  // namespace kolo::trainer
