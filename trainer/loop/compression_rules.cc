#include "trainer/loop/compression_rules.h"

#include <algorithm>

#include <fmt/format.h>

#include "trainer/config_error.h"

namespace kolo::trainer {
namespace {

constexpr std::string_view kAuto = "auto";

/// What stands between the parentheses of "auto(...)".
std::string_view arguments_of(std::string_view spec) {
  spec.remove_prefix(std::min(spec.size(), kAuto.size() + 1));
  return spec.substr(0, spec.rfind(')'));
}

}  // namespace

std::string adaptive_rules(std::string_view rules, const AdaptiveJob& job) {
  const bool is_auto = rules == kAuto || (rules.starts_with("auto(") && rules.ends_with(')'));
  if (!is_auto) return std::string(rules);
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

void require_device_compression(const Options& options) {
  // Both sparse methods, topk and block_topk, need an argument.
  if (options.device == "cpu" || options.compression.find("topk(") == std::string::npos) return;
  throw_config_error(
      fmt::format("--compression {}: top-k compresses gradients in host memory, and those of "
                  "--device {} are in the GPU's, where they would be sent dense; choose fp16, bf16 "
                  "or none, or --device cpu",
                  options.compression, options.device));
}

}  // namespace kolo::trainer
