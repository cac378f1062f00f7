#include "trainer/loop/gradient_dtype.h"

#include <string>

#include <fmt/format.h>

#include "trainer/config_error.h"
#include "trainer/loop/compression_rules.h"
#include "trainer/precision/precision.h"

namespace kolo::trainer {
namespace {

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
