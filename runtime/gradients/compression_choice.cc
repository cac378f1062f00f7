#include "runtime/gradients/compression_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace kolo {
namespace {

/// Returns the costs of one rank's exchange with the other nodes or, on one node, other ranks.
CompressionCosts costs_of_rank(const ProcessGrid& grid, const LinkCosts& costs, double sharers) {
  CompressionCosts result{.link = {},
                          .selector_bytes_per_us = costs.selector.bytes_per_us,
                          .pair_us = costs.selector.pair_us,
                          .cores = costs.rank_cores};
  if (grid.num_nodes() > 1) {
    result.link = {.latency_us = costs.network.latency_us,
                   .bytes_per_us = costs.network.bytes_per_us / sharers};
    result.message_us = costs.network.message_us;
  } else {
    result.link = {.latency_us = costs.memory.latency_us,
                   .bytes_per_us = costs.memory.shared_bytes_per_us / grid.world_size()};
  }
  return result;
}

/// Returns the part of a compressed bucket that one rank exchanges, the number of ranks, and costs.
BucketExchange exchange_of(const CompressedTensors& tensors, const ProcessGrid& grid,
                           const LinkCosts& costs) {
  const CompressionSpec& spec = tensors.spec;
  const bool by_nodes =
      grid.num_nodes() > 1 && grid.is_even() && spec.scope == SparseScope::kBetweenNodes;
  const int ranks = by_nodes ? grid.num_nodes() : grid.world_size();
  const auto sharers = static_cast<std::size_t>(grid.world_size() / grid.num_nodes());
  const std::size_t part = by_nodes ? tensors.count / sharers : tensors.count;
  std::size_t factors = 0;
  if (spec.method->takes_rank) {
    for (const std::size_t each : sparse_layout(0, grid, sparse_options(tensors)).plan.factors) {
      factors += each;
    }
  }
  return {.shape = {.count = part,
                    .pairs = pairs_to_keep(spec.density, part),
                    .factors = factors,
                    .matrix_rank = spec.matrix_rank,
                    .ranks = ranks,
                    .pair_bytes = static_cast<double>(size_of(spec.wire)) + 4,
                    .sum_bytes = spec.rule == QuotaRule::kLossless
                                     ? static_cast<double>(size_of(spec.wire))
                                     : 0},
          .costs = costs_of_rank(grid, costs, static_cast<double>(sharers))};
}

/// Returns a remark on choices that follow from costs of selection which were not measured.
std::string_view remark(const LinkCosts& costs) {
  if (costs.selector.bytes_per_us != SelectorCost{}.bytes_per_us) return {};
  return "; costs of selection are defaults: only the option `compression` has them measured";
}

/// Writes the choice for a compressed bucket to its gradients.
void travel(std::vector<GradientSpec>& gradients, const CompressedTensors& tensors,
            const ReducePath& path) {
  CompressionSpec spec = tensors.spec;
  spec.method = path.method;
  if (!spec.route) spec.route = path.route;
  for (const std::size_t i : tensors.gradients) {
    gradients[i].compression = spec.may_be_coded() ? spec.to_string() : std::string();
    if (!path.method->wire) continue;
    gradients[i].wire_dtype = spec.wire == DType::kFloat32 ? DType::kBFloat16 : spec.wire;
  }
}

/// Returns why a bucket cannot follow the method that its spec names; empty if it can.
std::string_view obstacle(const CompressedTensors& tensors, const ProcessGrid& grid,
                          bool native_in_nodes) {
  if (tensors.memory != MemoryKind::kDevice || tensors.spec.is_open()) return {};
  return device_obstacle(grid, sparse_options(tensors), native_in_nodes);
}

/// Orders buckets by readiness: backward passes compute the last registered gradient first.
bool is_ready_before(const OpenChoice& a, const OpenChoice& b) {
  return std::ranges::min(a.tensors.gradients) > std::ranges::min(b.tensors.gradients);
}

}  // namespace

std::string CompressedTensors::name(std::span<const GradientSpec> all) const {
  std::string text = fmt::format("'{}'", all[gradients.front()].name);
  if (gradients.size() > 1) text += fmt::format(" and {} more", gradients.size() - 1);
  return text;
}

std::vector<CompressedTensors> plan_compressed(std::span<const GradientSpec> gradients) {
  // The backward pass computes the last registered gradient first.
  std::map<std::pair<MemoryKind, std::string>, std::vector<std::size_t>> by_kind;
  for (std::size_t i = gradients.size(); i-- > 0;) {
    const GradientSpec& each = gradients[i];
    if (!each.compression.empty()) by_kind[{each.memory, each.compression}].push_back(i);
  }
  std::vector<CompressedTensors> groups;
  for (const auto& [kind, indices] : by_kind) {
    const auto& [memory, text] = kind;
    const CompressionSpec spec = CompressionSpec::parse(text);
    std::vector<std::size_t> counts;
    for (const std::size_t i : indices) counts.push_back(gradients[i].count());
    for (const auto& part : compressed_buckets(counts, spec.method->bucket_elements)) {
      CompressedTensors& tensors = groups.emplace_back();
      tensors.spec = spec;
      tensors.memory = memory;
      for (const std::size_t place : part) {
        const GradientSpec& gradient = gradients[indices[place]];
        tensors.gradients.push_back(indices[place]);
        tensors.tensors.push_back(
            {.name = gradient.name,
             .count = counts[place],
             .columns = gradient.shape.size() < 2 ? 1 : counts[place] / gradient.shape.front()});
        tensors.count += counts[place];
      }
    }
  }
  return groups;
}

SparseOptions sparse_options(const CompressedTensors& tensors) {
  const CompressionSpec& spec = tensors.spec;
  SparseOptions options{.method = spec.method,
                        .tensors = tensors.tensors,
                        .density = spec.density,
                        .threshold = spec.threshold,
                        .matrix_rank = spec.matrix_rank,
                        .warm_up = spec.warm_up(),
                        .route = spec.route.value_or(ExchangeRoute::kPairwise),
                        .rule = spec.rule,
                        .scope = spec.scope,
                        .wire = spec.wire,
                        .feedback = spec.feedback};
  if (spec.momentum > 0) options.momentum = MomentumCorrection{.momentum = spec.momentum};
  return options;
}

PlannedBucket planned_bucket(const CompressedTensors& tensors, ReduceOp op) {
  const SparseOptions options = sparse_options(tensors);
  const std::vector<std::size_t> offsets = tensor_offsets(options);
  PlannedBucket bucket{.layout = tensors.memory == MemoryKind::kDevice
                                     ? sparse_device_bucket(options, op)
                                     : sparse_bucket(options, op, Placement::kUser),
                       .segments = {}};
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    bucket.segments.push_back({.gradient = tensors.gradients[i],
                               .offset = offsets[i],
                               .count = options.tensors[i].count});
  }
  return bucket;
}

CompressionChoices choose_compression(std::vector<GradientSpec>& gradients, const ProcessGrid& grid,
                                      const LinkCosts& costs, bool native_in_nodes) {
  CompressionChoices choices;
  const bool has_device_memory =
      std::ranges::count(gradients, MemoryKind::kDevice, &GradientSpec::memory) > 0;
  for (const CompressedTensors& tensors : plan_compressed(gradients)) {
    const std::string_view cannot = obstacle(tensors, grid, native_in_nodes);
    if (!tensors.spec.leaves_choices() && cannot.empty()) continue;
    const BucketExchange exchange = exchange_of(tensors, grid, costs);
    const CompressionChoice choice = choose_path(exchange.shape, exchange.costs);
    const auto predict = [&](const ReducePath& path) {
      return predict_us(path, exchange.shape, exchange.costs);
    };
    const CompressionMethod& method = *tensors.spec.method;
    ReducePath path = choice.path;
    std::string why = choice.reason + std::string(remark(costs));
    if (!cannot.empty()) {
      path = {};
      why = cannot;
    } else if (!method.is_open) {
      path = fastest_path(method, exchange.shape, exchange.costs).path;
      why = fmt::format("the fastest route of {}, which was asked for{}", method.title,
                        remark(costs));
    } else if (grid.num_nodes() == 1) {
      path = {};
      why = "one node, where sums are as fast as the memory that selection reads";
    } else if (has_device_memory) {
      path = {};
      why = "a set with gradients in device memory keeps the plan that it begins with";
    } else if (path != ReducePath()) {
      path = {};
      why = fmt::format("until {} iterations are measured; of the exchange alone, {}",
                        kMeasuredIterations, why);
      choices.open.push_back({.tensors = tensors, .decision = choices.decisions.size()});
    }
    travel(gradients, tensors, path);
    choices.decisions.push_back({.tensors = tensors.name(gradients),
                                 .elements = tensors.count,
                                 .path = to_string(path),
                                 .predicted_ms = predict(path) / 1e3,
                                 .dense_ms = predict({}) / 1e3,
                                 .reason = why});
  }
  std::ranges::stable_sort(choices.open, is_ready_before);
  return choices;
}

bool settle_compression(std::vector<GradientSpec>& gradients, CompressionChoices& choices,
                        const DenseSteps& measured, const ProcessGrid& grid,
                        const LinkCosts& costs) {
  const std::vector<OpenChoice> open = std::exchange(choices.open, {});
  std::vector<BucketExchange> exchanges;
  for (const OpenChoice& choice : open) {
    exchanges.push_back(exchange_of(choice.tensors, grid, costs));
  }
  const StepChoice chosen = choose_step(exchanges, measured);
  for (std::size_t i = 0; i < open.size(); ++i) {
    CompressedTensors tensors = open[i].tensors;
    tensors.spec.warmup = std::max(tensors.spec.warmup, kMeasuredIterations);
    travel(gradients, tensors, chosen.paths[i]);
    CompressionDecision& decision = choices.decisions[open[i].decision];
    decision.path = to_string(chosen.paths[i]);
    decision.predicted_ms =
        predict_us(chosen.paths[i], exchanges[i].shape, exchanges[i].costs) / 1e3;
    decision.reason = chosen.reason + std::string(remark(costs));
  }
  return std::ranges::any_of(chosen.paths,
                             [](const ReducePath& path) { return path != ReducePath(); });
}

std::string describe(const CompressionChoices& choices, std::span<const GradientSpec> gradients) {
  std::string text;
  for (const OpenChoice& open : choices.open) {
    text +=
        fmt::format("{} of {}, {} elements, after {} iterations\n", open.tensors.spec.to_string(),
                    open.tensors.name(gradients), open.tensors.count, kMeasuredIterations);
  }
  return text;
}

std::uint64_t to_word(const DenseSteps& steps) {
  const auto ticks = [](double us) {
    constexpr double kMost = std::numeric_limits<std::uint32_t>::max();
    return static_cast<std::uint64_t>(std::clamp(std::round(10 * us), 0.0, kMost));
  };
  return ticks(steps.exposed_us) << 32 | ticks(steps.step_us);
}

DenseSteps dense_steps(std::uint64_t word) {
  return {.step_us = static_cast<double>(word & 0xFFFFFFFF) / 10,
          .exposed_us = static_cast<double>(word >> 32) / 10};
}

std::string to_string(const CompressionDecision& decision) {
  return fmt::format("{} of {} ({} elements): {}", decision.path, decision.tensors,
                     decision.elements, decision.reason);
}

double predict_sparse_us(const CompressedTensors& tensors, const ProcessGrid& grid,
                         const LinkCosts& costs) {
  const ReducePath path{.method = tensors.spec.method,
                        .route = tensors.spec.route.value_or(ExchangeRoute::kPairwise)};
  const BucketExchange exchange = exchange_of(tensors, grid, costs);
  return predict_us(path, exchange.shape, exchange.costs);
}

}  // namespace kolo
