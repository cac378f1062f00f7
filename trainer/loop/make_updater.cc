#include "trainer/loop/learner.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/base/log.h"
#include "trainer/errors.h"
#include "trainer/loop/async_updater.h"
#include "trainer/loop/compression_rules.h"
#include "trainer/loop/gradient_exchange.h"
#include "trainer/loop/local_updater.h"
#include "trainer/mesh/mesh.h"
#include "trainer/shards/shard_plan.h"

namespace kolo::trainer {
namespace {

OptimizerOptions optimizer_options(const Config& config) {
  OptimizerOptions options = config.optimizer_options;
  options.decay_rules = parse_decay_rules(config.decay_rules);
  return options;
}

void warn_of_unused(std::string_view option, const std::string& pattern) {
  log::warn(fmt::format("{}: the rule for '{}' decides about no parameter", option, pattern));
}

/// Warns of rules of compression that apply to no parameter, which are most likely misspelt, and of
/// tables whose gradients are rows, which nothing compresses. Movements of weights have no rows.
void warn_of_unused_compression(const Config& config, const CompressionRules& rules,
                                const ParameterSet& parameters) {
  const auto has_rows = [&](std::size_t i) {
    return parameters[i].rows() != nullptr && !has_local_steps(config);
  };
  for (const auto& [pattern, spec] : rules.rules()) {
    bool is_used = false;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const bool is_for_it = !has_rows(i) || spec == CompressionSpec{};
      is_used |= is_for_it && matches(pattern, parameters[i].name());
    }
    if (!is_used) warn_of_unused("--compression", pattern);
  }
  std::vector<std::string> tables;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::string& name = parameters[i].name();
    if (has_rows(i) && rules.spec_of(name) != CompressionSpec{}) tables.push_back(name);
  }
  if (tables.empty()) return;
  log::warn(
      fmt::format("--compression {}: the rows of {} are sent as they are; --row-gradients off "
                  "compresses tables",
                  rules.to_string(), fmt::join(tables, ", ")));
}

/// Warns of rules that apply to no parameter.
void warn_of_unused_rules(const Config& config, const Options& options,
                          const ParameterSet& parameters) {
  for (const std::string& pattern :
       unused_rules(parse_decay_rules(config.decay_rules), parameters)) {
    warn_of_unused("--decay-rules", pattern);
  }
  warn_of_unused_compression(config, CompressionRules::parse(options.compression), parameters);
}

/// Checks that ranks may join. Errors: KoloError(kConfig) for features that need all ranks.
void require_joinable(const Options& options, const ParameterSet& parameters) {
  if (options.compression != "none" && !options.compression.empty()) {
    throw_config_error("--uneven join with --compression " + options.compression +
                       ": averages over samples are not sent sparsely; set --uneven pad, or "
                       "--compression none and a 16-bit --wire");
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].rows() == nullptr) continue;
    throw_config_error("--uneven join with --row-gradients on: the rows of '" +
                       parameters[i].name() +
                       "' need all ranks; set --uneven pad, or --row-gradients off");
  }
}

std::unique_ptr<ParameterUpdater> make_sharded(const Config& config, const MakeOptimizer& make,
                                               Runtime& runtime, ParameterSet& parameters,
                                               const Clock& clock) {
  gradient_dtype(config, runtime.options());  // throws unless it is float32
  using Keep = ShardOptions::Keep;
  return make_sharded_optimizer(
      runtime, parameters, make,
      {.gate = update_options(config),
       .keep = config.shard == "gradients" ? Keep::kShards : Keep::kWhole},
      clock);
}

LocalOptions local_options(const Config& config) {
  using Unit = LocalOptions::Unit;
  LocalOptions options{.times = {.every = exchange_every(config),
                                 .fragments = config.fragments,
                                 .overlap = config.overlap},
                       .after = config.local_after,
                       .unit = config.local_unit == "node" ? Unit::kNode : Unit::kRank};
  if (config.exchange == "diloco") options.outer = {config.outer_lr, config.outer_momentum};
  return options;
}

std::unique_ptr<ParameterUpdater> make_replicated(const Config& config, const OptimizerEntry& entry,
                                                  Runtime& runtime, const Task& task,
                                                  ParameterSet& parameters, const Clock& clock,
                                                  Mesh* mesh) {
  auto optimizer = entry.make(parameters, optimizer_options(config));
  GradientExchange::Options options{.gate = update_options(config),
                                    .compression = runtime.options().compression,
                                    .gradient_dtype = gradient_dtype(config, runtime.options()),
                                    .counts_samples = config.uneven == "join",
                                    .norm_bytes = shard_bucket_bytes(runtime.options()),
                                    .mesh = mesh};
  if (has_local_steps(config)) {
    options.compression = "none";  // --compression is for movements of weights
    return make_local_updater(runtime, parameters, std::move(optimizer), local_options(config),
                              options, clock);
  }
  if (options.counts_samples) require_joinable(runtime.options(), parameters);
  if (optimizer->adaptation()) {
    // --balance, which gives ranks unequal batches, excludes this: ranks find the same steps.
    if (CompressionRules::parse(options.compression).any(&CompressionSpec::is_open)) {
      const std::size_t steps =
          total_steps(config, task.data.train->size(), data_ranks(config.mesh, runtime));
      options.compression = adaptive_rules(
          options.compression, {.warmup_steps = config.warmup_steps, .total_steps = steps});
    }
    if (runtime.rank() == 0) advise_adaptive(config, options.compression);
  }
  Group& group = mesh == nullptr ? runtime : mesh->data();
  return std::make_unique<GradientExchange>(group, parameters, std::move(optimizer), options,
                                            clock);
}

}  // namespace

std::unique_ptr<ParameterUpdater> make_updater(const Config& config, const OptimizerEntry& entry,
                                               Runtime& runtime, const Task& task,
                                               ParameterSet& parameters, const Clock& clock,
                                               Mesh* mesh) {
  if (config.row_gradients && !is_asynchronous(config)) parameters.use_rows();
  if (runtime.rank() == 0) warn_of_unused_rules(config, runtime.options(), parameters);
  const MakeOptimizer make = [make_of = entry.make, options = optimizer_options(config)](
                                 ParameterSet& of) { return make_of(of, options); };
  if (config.shard != "none") return make_sharded(config, make, runtime, parameters, clock);
  if (!is_asynchronous(config)) {
    return make_replicated(config, entry, runtime, task, parameters, clock, mesh);
  }
  return make_async_updater(runtime, parameters, make,
                            {.gate = update_options(config), .staleness = config.staleness}, clock);
}

}  // namespace kolo::trainer
