#include "compression/chooser.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include <fmt/format.h>

#include "comm/base/check.h"

namespace kolo {
namespace {

constexpr ReducePath kPaths[] = {ReducePath::kDense, ReducePath::kDense16, ReducePath::kAllGather,
                                 ReducePath::kOwnersPairwise, ReducePath::kOwnersLogStep};

// How often a byte is sent on its way to its owner by log steps, summed over all owners and divided
// by their number: a payload takes one hop for each bit set in its distance.
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
    default:
      return std::nullopt;
  }
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
  const auto link = [&](double messages, double bytes) {
    return messages * costs.link.latency_us + bytes / costs.link.bytes_per_us;
  };
  // One pass that reads two streams and writes one; casting there and back moves as much.
  const double slower = 1 / std::min(costs.cores, 1.0);
  const double pass_us = slower * 12 * n / costs.selector_bytes_per_us;
  const double pairs_us = slower * k * costs.pair_us;
  const double back = k * group.result_pair_bytes * others / ranks;
  switch (path) {
    case ReducePath::kDense:
      return link(2 * rounds, 8 * n * others / ranks);
    case ReducePath::kDense16:
      // Chunk by chunk, while others are on their way.
      return link(2 * rounds, 0) +
             std::max(pass_us, 4 * n * others / ranks / costs.link.bytes_per_us);
    case ReducePath::kAllGather:
      return pass_us + link(rounds, others * k * group.pair_bytes) + (1 + ranks) / 2 * pairs_us;
    case ReducePath::kOwnersPairwise:
      return pass_us + link(others + rounds, k * group.pair_bytes * others / ranks + back) +
             pairs_us;
    case ReducePath::kOwnersLogStep:
      return pass_us + link(2 * rounds, k * group.pair_bytes * log_step_hops(group.ranks) + back) +
             pairs_us;
  }
  return 0;
}

CompressionChoice choose_path(const CompressionGroupShape& group, const CompressionCosts& costs) {
  CompressionChoice choice;
  for (const ReducePath path : kPaths) {
    choice.predictions.push_back({.path = path, .us = predict_us(path, group, costs)});
  }
  const auto visible = [&](const PathPrediction& prediction) {
    return std::max(0.0, prediction.us - group.overlap_us);
  };
  const auto pays = [&](const PathPrediction& instead, const PathPrediction& of) {
    return visible(of) > 0 && kLeastGain * visible(instead) <= visible(of);
  };
  const PathPrediction& dense32 = choice.predictions[0];
  const PathPrediction& dense16 = choice.predictions[1];
  const PathPrediction& dense = pays(dense16, dense32) ? dense16 : dense32;
  const PathPrediction& sparse = *std::ranges::min_element(
      choice.predictions.begin() + 2, choice.predictions.end(), {}, &PathPrediction::us);
  const bool compress = pays(sparse, dense);
  choice.path = compress ? sparse.path : dense.path;
  if (visible(dense) == 0) {
    choice.reason = fmt::format(
        "{} predicted, all of it hidden behind computation: nothing to gain", predicted(dense));
    return choice;
  }
  const double gain = visible(dense) / std::max(visible(sparse), 1e-3);
  choice.reason = compress
                      ? fmt::format("{} predicted, {:.1f} times as fast as {}", predicted(sparse),
                                    gain, predicted(dense))
                      : fmt::format("{} predicted; {} would be {:.2f} times as fast, less than {}",
                                    predicted(dense), predicted(sparse), gain, kLeastGain);
  return choice;
}

}  // namespace kolo
