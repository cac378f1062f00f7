#include "runtime/compression_choice.h"

#include <algorithm>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "compression/chooser.h"

namespace kolo {
namespace {

/// What one rank's exchange with the other nodes takes, or with the ranks of the only one.
CompressionCosts costs_of_rank(const ProcessGrid& grid, const LinkCosts& costs, double sharers) {
  CompressionCosts result{.link = {},
                          .selector_bytes_per_us = costs.selector.bytes_per_us,
                          .pair_us = costs.selector.pair_us,
                          .cores = costs.rank_cores};
  if (grid.num_nodes() > 1) {
    result.link = {.latency_us = costs.network.latency_us + costs.network.message_us,
                   .bytes_per_us = costs.network.bytes_per_us / sharers};
  } else {
    result.link = {.latency_us = costs.memory.latency_us,
                   .bytes_per_us = costs.memory.shared_bytes_per_us / grid.world_size()};
  }
  return result;
}

/// A group's part that one rank exchanges, among whom, and what that costs.
struct Exchange {
  CompressionGroupShape shape;
  CompressionCosts costs;
};

Exchange exchange_of(std::size_t count, const CompressionSpec& spec, const ProcessGrid& grid,
                     const LinkCosts& costs) {
  const bool by_nodes =
      grid.num_nodes() > 1 && grid.is_even() && spec.scope == SparseScope::kBetweenNodes;
  const int ranks = by_nodes ? grid.num_nodes() : grid.world_size();
  const auto sharers = static_cast<std::size_t>(grid.world_size() / grid.num_nodes());
  const std::size_t part = by_nodes ? count / sharers : count;
  return {.shape = {.count = part,
                    .pairs = pairs_to_keep(spec.density, part),
                    .ranks = ranks,
                    .pair_bytes = static_cast<double>(size_of(spec.wire)) + 4},
          .costs = costs_of_rank(grid, costs, static_cast<double>(sharers))};
}

ReducePath fastest_sparse(const CompressionChoice& choice) {
  const PathPrediction* best = nullptr;
  for (const PathPrediction& prediction : choice.predictions) {
    if (!route_of(prediction.path)) continue;
    if (best == nullptr || prediction.us < best->us) best = &prediction;
  }
  return best->path;
}

double predicted_us(const CompressionChoice& choice, ReducePath path) {
  return std::ranges::find(choice.predictions, path, &PathPrediction::path)->us;
}

}  // namespace

std::vector<CompressionDecision> choose_compression(std::vector<GradientSpec>& gradients,
                                                    const ProcessGrid& grid,
                                                    const LinkCosts& costs) {
  std::vector<CompressionDecision> decisions;
  for (const PlannedGroup& group : plan_groups(gradients)) {
    CompressionSpec spec = group.spec;
    if (!spec.leaves_choices()) continue;
    const Exchange exchange = exchange_of(group.count, spec, grid, costs);
    const CompressionChoice choice = choose_path(exchange.shape, exchange.costs);
    const bool is_free = spec.method == CompressionMethod::kAuto;
    ReducePath path = choice.path;
    std::string why = choice.reason;
    if (!is_free) {
      path = fastest_sparse(choice);
      why = "the fastest route of top-k, which was asked for";
    } else if (grid.num_nodes() == 1) {
      path = ReducePath::kDense;
      why = "one node, where sums are as fast as the memory that selection reads";
    }
    std::optional<DType> wire;
    if (const auto route = route_of(path)) {
      spec.method = CompressionMethod::kTopK;
      if (!spec.route) spec.route = route;
    } else {
      spec.method = CompressionMethod::kNone;
      if (path == ReducePath::kDense16)
        wire = spec.wire == DType::kFloat32 ? DType::kBFloat16 : spec.wire;
    }
    for (const std::size_t i : group.gradients) {
      gradients[i].compression = spec.may_be_sparse() ? spec.to_string() : std::string();
      if (wire) gradients[i].wire_dtype = wire;
    }
    decisions.push_back({.tensors = group.name(gradients),
                         .elements = group.count,
                         .path = std::string(to_string(path)),
                         .predicted_ms = predicted_us(choice, path) / 1e3,
                         .dense_ms = predicted_us(choice, ReducePath::kDense) / 1e3,
                         .reason = why});
  }
  return decisions;
}

std::string to_string(const CompressionDecision& decision) {
  return fmt::format("{} of {} ({} elements): {}", decision.path, decision.tensors,
                     decision.elements, decision.reason);
}

double predict_sparse_us(const PlannedGroup& group, const ProcessGrid& grid,
                         const LinkCosts& costs) {
  const ExchangeRoute route = group.spec.route.value_or(ExchangeRoute::kPairwise);
  const Exchange exchange = exchange_of(group.count, group.spec, grid, costs);
  for (const ReducePath path : {ReducePath::kAllGather, ReducePath::kOwnersPairwise}) {
    if (route_of(path) == route) return predict_us(path, exchange.shape, exchange.costs);
  }
  return predict_us(ReducePath::kOwnersLogStep, exchange.shape, exchange.costs);
}

}  // namespace kolo
