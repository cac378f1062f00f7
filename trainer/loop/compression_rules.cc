#include "trainer/loop/compression_rules.h"

#include <algorithm>

#include <fmt/format.h>

#include "comm/base/log.h"
#include "trainer/errors.h"
#include "trainer/precision/precision.h"

namespace kolo::trainer {
namespace {

DType automatic_dtype(const Config& config, const Options& options) {
  const bool fits = parse_precision(config.precision) == DType::kBFloat16 &&
                    options.device == "cpu" && config.shard == "none" && !is_asynchronous(config) &&
                    options.compression == "none" &&
                    options.wire_dtype.value_or(DType::kBFloat16) == DType::kBFloat16;
  return fits ? DType::kBFloat16 : DType::kFloat32;
}

}  // namespace

std::string adaptive_rules(const std::string& rules, const AdaptiveJob& job) {
  const CompressionRules given = CompressionRules::parse(rules);
  auto [pattern, spec] = given.rules().front();
  if (given.rules().size() > 1 || pattern != "*" || !spec.is_open()) return rules;
  if (spec.warmup == 0) {
    spec.warmup = std::max(job.total_steps * 15 / 100, job.warmup_steps + job.warmup_steps / 5);
  }
  spec.rule = QuotaRule::kLossless;
  return "embedding*=none,*=" + spec.to_string();
}

bool begins_sparse_early(const std::string& rules, std::size_t warmup_steps) {
  return std::ranges::any_of(CompressionRules::parse(rules).rules(), [&](const auto& rule) {
    return rule.spec.is_sparse() && rule.spec.warmup <= warmup_steps;
  });
}

void advise_adaptive(const Config& config, const std::string& compression) {
  if (begins_sparse_early(compression, config.warmup_steps)) {
    log::warn(
        fmt::format("--compression {}: the loss has spikes where sparse steps begin before the "
                    "learning rate has risen, in {} steps; add warmup=STEPS (15 % of all "
                    "steps worked) and rule=lossless",
                    compression, config.warmup_steps));
  }
  if (CompressionRules::parse(compression).any(&CompressionSpec::is_sparse) &&
      config.clip_norm > 0.0) {
    log::warn(
        fmt::format("--clip-norm {}: it limits gradients in dense steps only; in sparse ones "
                    "{} sends directions, and 'norm' is theirs",
                    config.clip_norm, config.optimizer));
  }
}

void require_device_compression(const Config& config, const Options& options) {
  if (options.device == "cpu") return;
  const CompressionRules rules = CompressionRules::parse(options.compression);
  const auto refuse = [&](const std::string& why) {
    throw_config_error(
        fmt::format("--compression {}: {}, or choose --device cpu", options.compression, why));
  };
  for (const auto& [pattern, spec] : rules.rules()) {
    if (!spec.has_codec()) continue;
    if (!spec.method->on_device) {
      refuse(
          fmt::format("{} compresses gradients in host memory, and those of --device {} are in "
                      "the GPU's, where they would be sent dense; choose topk, int8, fp8, 2bit, "
                      "sign, fp16, bf16 or none",
                      spec.method->title, options.device));
    }
    if (spec.momentum > 0 && config.optimizer != "sgd") {
      refuse("dgc corrects the momentum of sgd; leave dgc out, choose --optimizer sgd");
    }
    if (update_options(config).loss_scale.mode != LossScaler::Mode::kOff) {
      refuse(
          "residuals on a GPU have no loss scale; choose --precision bfloat16 with --loss-scale "
          "auto");
    }
  }
}

void require_momentum(float corrected, float momentum, const std::string& parameter) {
  if (corrected == momentum) return;
  throw_config_error(
      fmt::format("dgc={} for '{}': --momentum is {}, and all parameters have one momentum: give "
                  "both the same value",
                  corrected, parameter, momentum));
}

DType gradient_dtype(const Config& config, const Options& options) {
  if (config.gradients == "auto") return automatic_dtype(config, options);
  const DType dtype = parse_gradients(config.gradients);
  if (dtype == DType::kFloat32) return dtype;
  if (config.shard != "none" && options.device == "cpu") {
    throw_config_error(
        fmt::format("--gradients {} with --shard {}: shards are averaged in float32; choose "
                    "--gradients float32, or --shard none",
                    config.gradients, config.shard));
  }
  if (CompressionRules::parse(options.compression).any(&CompressionSpec::may_be_coded)) {
    throw_config_error(fmt::format(
        "--gradients {}: --compression {} may send sparse gradients, whose residuals "
        "belong to float32 gradients; choose --gradients float32, or --compression none",
        config.gradients, options.compression));
  }
  return dtype;
}

}  // namespace kolo::trainer
