#include "compression/chooser.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "comm/base/check.h"

namespace kolo {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

std::string time_text(double us) {
  if (us >= 1e5) return fmt::format("{:.2f} s", us / 1e6);
  return us >= 100 ? fmt::format("{:.2f} ms", us / 1e3) : fmt::format("{:.1f} us", us);
}

bool pays(double instead_us, double us) { return us > 0 && kLeastGain * instead_us <= us; }

/// The paths of all buckets of a set, among the methods of `compression_methods` up to `last`.
struct Way {
  const CompressionMethod* last;
  std::vector<ReducePath> paths = {};
  double exchange_us = 0;
  double work_us = 0;  // work on shared cores
  double last_us = 0;  // time of the last bucket, if it has a codec

  void add(const ReducePath& path, const BucketExchange& bucket) {
    paths.push_back(path);
    const double us = predict_us(path, bucket.shape, bucket.costs);
    exchange_us += us;
    if (bucket.costs.cores < 1) work_us += kolo::work_us(path, bucket.shape, bucket.costs);
    last_us = path.route ? us : 0;
  }
  double visible_us(double overlap_us) const {
    return std::max({exchange_us - overlap_us, work_us, last_us});
  }
};

std::string predicted(const PathPrediction& prediction) {
  return fmt::format("{} {}", to_string(prediction.path), time_text(prediction.us));
}

/// Chooses the path of a bucket among the methods up to `last`, in the order of preference.
CompressionChoice choose_up_to(const CompressionMethod* last, const CompressedBucketShape& bucket,
                               const CompressionCosts& costs) {
  PathPrediction best{.us = kNever}, other;  // `other` is the path of the last comparison
  bool compress = false;
  for (const CompressionMethod* method : compression_methods()) {
    if (!method->competes) continue;
    other = fastest_path(*method, bucket, costs);
    compress = pays(other.us, best.us);
    if (compress) std::swap(best, other);
    if (method == last) break;
  }
  CompressionChoice choice{.path = best.path};
  if (compress) {
    choice.reason = fmt::format("{} predicted, {:.1f} times as fast as {}", predicted(best),
                                other.us / std::max(best.us, 1e-3), predicted(other));
  } else {
    choice.reason =
        fmt::format("{} predicted; {} would be {:.2f} times as fast, less than {}", predicted(best),
                    predicted(other), best.us / std::max(other.us, 1e-3), kLeastGain);
  }
  return choice;
}

}  // namespace

std::string to_string(const ReducePath& path) {
  std::string text(path.method->title);
  if (path.route == ExchangeRoute::kAllGather) return text + " by all-gather";
  return path.route ? text + " through owners" : text;
}

double work_us(const ReducePath& path, const CompressedBucketShape& bucket,
               const CompressionCosts& costs) {
  if (bucket.ranks == 1) return 0;
  const ExchangeNeeds needs = path.method->needs(bucket, costs);
  const double sums = path.route == ExchangeRoute::kAllGather ? (1.0 + bucket.ranks) / 2 : 1.0;
  return (needs.pass_us + sums * needs.sum_us) / std::min(costs.cores, 1.0);
}

double predict_us(const ReducePath& path, const CompressedBucketShape& bucket,
                  const CompressionCosts& costs) {
  check(bucket.ranks > 0, "a compression bucket has at least one rank");
  if (bucket.ranks == 1) return 0;
  const double others = bucket.ranks - 1;
  const double work = work_us(path, bucket, costs);
  const ExchangeNeeds needs = path.method->needs(bucket, costs);
  // Returns the time of rounds with `messages` messages each.
  const auto link = [&](double of_rounds, double messages, double bytes) {
    return needs.exchanges * of_rounds * (costs.link.latency_us + messages * costs.message_us) +
           bytes / costs.link.bytes_per_us;
  };
  const double to_owners = needs.contribution_bytes * others / bucket.ranks;
  const double back = needs.result_bytes * others / bucket.ranks;
  if (!path.route) {
    const double rounds = 2 * std::bit_width(static_cast<unsigned>(bucket.ranks) - 1);
    // Work on a chunk overlaps with transfers of other chunks.
    return link(rounds, 1, 0) + std::max(work, link(0, 0, to_owners + back));
  }
  switch (*path.route) {
    case ExchangeRoute::kAllGather:
      return work + link(1, others, others * needs.contribution_bytes);
    case ExchangeRoute::kPairwise:
      return work + link(2, others, to_owners + back);
  }
  return 0;
}

PathPrediction fastest_path(const CompressionMethod& method, const CompressedBucketShape& bucket,
                            const CompressionCosts& costs) {
  if (method.make_codec == nullptr) return {{&method}, predict_us({&method}, bucket, costs)};
  PathPrediction best{.us = kNever};
  for (const ExchangeRoute route : {ExchangeRoute::kAllGather, ExchangeRoute::kPairwise}) {
    if (method.needs_owners && route == ExchangeRoute::kAllGather) continue;
    const ReducePath path{.method = &method, .route = route};
    const double us = predict_us(path, bucket, costs);
    if (us < best.us) best = {.path = path, .us = us};
  }
  return best;
}

CompressionChoice choose_path(const CompressedBucketShape& bucket, const CompressionCosts& costs) {
  return choose_up_to(compression_methods().back(), bucket, costs);
}

StepChoice choose_step(std::span<const BucketExchange> buckets, const DenseSteps& measured) {
  check(!buckets.empty(), "steps are chosen for at least one bucket");
  std::vector<Way> ways;
  for (const CompressionMethod* method : compression_methods()) {
    if (!method->competes) continue;
    Way& way = ways.emplace_back(Way{.last = method});
    for (const BucketExchange& bucket : buckets) {
      way.add(choose_up_to(method, bucket.shape, bucket.costs).path, bucket);
    }
  }
  const Way& dense = ways.front();
  const double overlap_us = std::max(0.0, dense.exchange_us - measured.exposed_us);
  const double rest_us = measured.step_us - dense.visible_us(overlap_us);
  StepChoice choice{.paths = dense.paths, .step_us = measured.step_us};
  choice.reason = fmt::format("dense steps took {}, {} of it waiting for sums; predicted ",
                              time_text(measured.step_us), time_text(measured.exposed_us));
  for (std::size_t i = 1; i < ways.size(); ++i) {
    const double step_us = rest_us + ways[i].visible_us(overlap_us);
    if (ways[i].paths != ways[i - 1].paths) {
      choice.reason += fmt::format("{} with {}, ", time_text(step_us), ways[i].last->title);
    }
    if (!pays(step_us, choice.step_us)) continue;
    choice.paths = ways[i].paths;
    choice.step_us = step_us;
  }
  choice.reason += fmt::format("where {} times as short is asked for", kLeastGain);
  return choice;
}

}  // namespace kolo
