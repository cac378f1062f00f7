#include "compression/chooser.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "comm/base/check.h"

namespace kolo {
namespace {

constexpr ReducePath kPaths[] = {ReducePath::kDense, ReducePath::kDense16, ReducePath::kAllGather,
                                 ReducePath::kOwnersPairwise, ReducePath::kOwnersLogStep};

// Average number of times that a byte is sent on its way to its owner by log steps: a payload takes
// one hop for each bit set in its distance.
double log_step_hops(int ranks) {
  std::size_t hops = 0;
  for (unsigned distance = 1; distance < static_cast<unsigned>(ranks); ++distance) {
    hops += static_cast<std::size_t>(std::popcount(distance));
  }
  return static_cast<double>(hops) / ranks;
}

std::string time_text(double us) {
  if (us >= 1e5) return fmt::format("{:.2f} s", us / 1e6);
  return us >= 100 ? fmt::format("{:.2f} ms", us / 1e3) : fmt::format("{:.1f} us", us);
}

bool pays(double instead_us, double us) { return us > 0 && kLeastGain * instead_us <= us; }

/// One choice of paths for all groups of a set.
struct Way {
  std::string_view name;
  std::vector<ReducePath> paths = {};
  double exchange_us = 0;
  double work_us = 0;  // including work on shared cores
  double last_us = 0;  // of the last group, if it is sparse

  void add(ReducePath path, const GroupExchange& group) {
    paths.push_back(path);
    const double us = predict_us(path, group.shape, group.costs);
    exchange_us += us;
    if (group.costs.cores < 1) work_us += kolo::work_us(path, group.shape, group.costs);
    last_us = route_of(path) ? us : 0;
  }
  double visible_us(double overlap_us) const {
    return std::max({exchange_us - overlap_us, work_us, last_us});
  }
};

std::string predicted(const PathPrediction& prediction) {
  return fmt::format("{} {}", to_string(prediction.path), time_text(prediction.us));
}

}  // namespace

std::string_view to_string(ReducePath path) {
  switch (path) {
    case ReducePath::kDense:
      return "dense";
    case ReducePath::kDense16:
      return "dense 16-bit";
    case ReducePath::kAllGather:
      return "top-k by all-gather";
    case ReducePath::kOwnersPairwise:
      return "top-k through owners";
    case ReducePath::kOwnersLogStep:
      return "top-k through owners by log steps";
  }
  return "";
}

std::optional<ExchangeRoute> route_of(ReducePath path) {
  switch (path) {
    case ReducePath::kAllGather:
      return ExchangeRoute::kAllGather;
    case ReducePath::kOwnersPairwise:
      return ExchangeRoute::kPairwise;
    case ReducePath::kOwnersLogStep:
      return ExchangeRoute::kLogStep;
    case ReducePath::kDense:
    case ReducePath::kDense16:
      break;
  }
  return std::nullopt;
}

double work_us(ReducePath path, const CompressionGroupShape& group, const CompressionCosts& costs) {
  if (group.ranks == 1 || path == ReducePath::kDense) return 0;
  const double slower = 1 / std::min(costs.cores, 1.0);
  // One pass that reads two streams and writes one; casting to the wire and back moves as much.
  const double pass_us =
      slower * 12 * static_cast<double>(group.count) / costs.selector_bytes_per_us;
  const double pairs_us = slower * static_cast<double>(group.pairs) * costs.pair_us;
  if (path == ReducePath::kDense16) return pass_us;
  const double ways = path == ReducePath::kAllGather ? (1.0 + group.ranks) / 2 : 1.0;
  return pass_us + ways * pairs_us;
}

double predict_us(ReducePath path, const CompressionGroupShape& group,
                  const CompressionCosts& costs) {
  check(group.ranks > 0, "a compression group has at least one rank");
  if (group.ranks == 1) return 0;
  const auto n = static_cast<double>(group.count);
  const auto k = static_cast<double>(group.pairs);
  const double ranks = group.ranks;
  const double others = ranks - 1;
  const double rounds = log_step_rounds(group.ranks);
  const double work = work_us(path, group, costs);
  // Rounds of so many messages each.
  const auto link = [&](double of_rounds, double messages, double bytes) {
    return of_rounds * (costs.link.latency_us + messages * costs.message_us) +
           bytes / costs.link.bytes_per_us;
  };
  const double back = k * group.result_pair_bytes * others / ranks;
  switch (path) {
    case ReducePath::kDense:
      return link(2 * rounds, 1, 8 * n * others / ranks);
    case ReducePath::kDense16:
      // Chunk by chunk, while other chunks are in flight.
      return link(2 * rounds, 1, 0) +
             std::max(work, 4 * n * others / ranks / costs.link.bytes_per_us);
    case ReducePath::kAllGather:
      return work + link(1, others, others * k * group.pair_bytes);
    case ReducePath::kOwnersPairwise:
      return work + link(2, others, k * group.pair_bytes * others / ranks + back);
    case ReducePath::kOwnersLogStep:
      return work + link(2 * rounds, 1, k * group.pair_bytes * log_step_hops(group.ranks) + back);
  }
  return 0;
}

CompressionChoice choose_path(const CompressionGroupShape& group, const CompressionCosts& costs) {
  CompressionChoice choice;
  for (const ReducePath path : kPaths) {
    choice.predictions.push_back({.path = path, .us = predict_us(path, group, costs)});
  }
  const PathPrediction& dense32 = choice.predictions[0];
  const PathPrediction& dense16 = choice.predictions[1];
  const PathPrediction& dense = pays(dense16.us, dense32.us) ? dense16 : dense32;
  const PathPrediction& sparse = *std::ranges::min_element(
      choice.predictions.begin() + 2, choice.predictions.end(), {}, &PathPrediction::us);
  const bool compress = pays(sparse.us, dense.us);
  choice.path = compress ? sparse.path : dense.path;
  const double gain = dense.us / std::max(sparse.us, 1e-3);
  choice.reason = compress
                      ? fmt::format("{} predicted, {:.1f} times as fast as {}", predicted(sparse),
                                    gain, predicted(dense))
                      : fmt::format("{} predicted; {} would be {:.2f} times as fast, less than {}",
                                    predicted(dense), predicted(sparse), gain, kLeastGain);
  return choice;
}

StepChoice choose_step(std::span<const GroupExchange> groups, const DenseSteps& measured) {
  check(!groups.empty(), "steps are chosen for at least one group");
  Way dense{.name = "dense"}, dense16{.name = "16 bits"}, sparse{.name = "top-k"};
  for (const GroupExchange& group : groups) {
    const CompressionChoice choice = choose_path(group.shape, group.costs);
    const bool rounds = pays(choice.predictions[1].us, choice.predictions[0].us);
    const ReducePath best_dense = rounds ? ReducePath::kDense16 : ReducePath::kDense;
    dense.add(ReducePath::kDense, group);
    dense16.add(best_dense, group);
    sparse.add(choice.path, group);
  }
  const double overlap_us = std::max(0.0, dense.exchange_us - measured.exposed_us);
  const double rest_us = measured.step_us - dense.visible_us(overlap_us);
  const auto step_us = [&](const Way& way) { return rest_us + way.visible_us(overlap_us); };
  const Way& best_dense = pays(step_us(dense16), step_us(dense)) ? dense16 : dense;
  const Way& best = pays(step_us(sparse), step_us(best_dense)) ? sparse : best_dense;
  StepChoice choice{.paths = best.paths, .step_us = step_us(best)};
  choice.reason = fmt::format("dense steps took {}, {} of it waiting for sums; predicted ",
                              time_text(measured.step_us), time_text(measured.exposed_us));
  if (dense16.paths != dense.paths) {
    choice.reason += fmt::format("{} with {}, ", time_text(step_us(dense16)), dense16.name);
  }
  if (sparse.paths != dense16.paths) {
    choice.reason += fmt::format("{} with {}, ", time_text(step_us(sparse)), sparse.name);
  }
  choice.reason += fmt::format("where {} times as short is asked for", kLeastGain);
  return choice;
}

}  // namespace kolo
