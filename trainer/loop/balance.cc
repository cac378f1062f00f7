#include "trainer/loop/balance.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/base/check.h"
#include "trainer/errors.h"
#include "trainer/loop/compression_rules.h"
#include "trainer/loop/job.h"
#include "trainer/report/summary.h"

namespace kolo::trainer {
namespace {

/// Returns the time of the slowest rank for a pass, in the unit of time of `rates`.
double slowest(const std::vector<std::size_t>& samples, const std::vector<double>& rates) {
  double time = 0.0;
  for (std::size_t rank = 0; rank < rates.size(); ++rank) {
    time = std::max(time, static_cast<double>(samples[rank]) / rates[rank]);
  }
  return time;
}

}  // namespace

std::vector<std::size_t> deal_out(std::size_t samples, const std::vector<double>& rates) {
  check(samples >= rates.size(), "every rank gets a sample");
  const double all = std::accumulate(rates.begin(), rates.end(), 0.0);
  std::vector<std::size_t> parts(rates.size());
  std::vector<double> missing(rates.size());  // by rank, its exact share minus its part
  for (std::size_t rank = 0; rank < rates.size(); ++rank) {
    const double share = static_cast<double>(samples) * rates[rank] / all;
    parts[rank] = std::max<std::size_t>(1, static_cast<std::size_t>(share));
    missing[rank] = share - static_cast<double>(parts[rank]);
  }
  std::size_t given = std::accumulate(parts.begin(), parts.end(), std::size_t{0});
  for (; given < samples; ++given) {
    const auto rank = std::ranges::max_element(missing) - missing.begin();
    ++parts[static_cast<std::size_t>(rank)];
    missing[static_cast<std::size_t>(rank)] -= 1.0;
  }
  // Ranks with a share below 1 were given a whole sample. The ranks that exceed their shares most
  // give up these samples.
  for (; given > samples; --given) {
    std::size_t from = 0;
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      const bool can_give = parts[rank] > 1;
      if (can_give && (parts[from] == 1 || missing[rank] < missing[from])) from = rank;
    }
    --parts[from];
    missing[from] += 1.0;
  }
  return parts;
}

Balance::Balance(Runtime& runtime, const Config& config)
    : runtime_(runtime),
      measures_(config.balance == "auto"),
      batches_(static_cast<std::size_t>(runtime.world_size()), config.batch) {
  const std::string& compression = runtime.options().compression;
  if (config.balance != "off" &&
      CompressionRules::parse(compression).any(&CompressionSpec::is_open)) {
    throw_config_error(fmt::format(
        "--balance {} with --compression {}: both follow measured times; name the method of "
        "compression instead, which the line 'compression:' reports",
        config.balance, compression));
  }
  if (measures_ && runtime.options().reproducible) {
    throw_config_error(
        "--balance auto with --reproducible on: it follows measured times; name rates instead, "
        "such as --balance 2,1");
  }
  const std::vector<double> rates = parse_rates(config.balance);
  if (rates.empty()) return;
  if (rates.size() != batches_.size()) {
    throw_config_error(fmt::format("--balance {}: {} rates for {} ranks", config.balance,
                                   rates.size(), batches_.size()));
  }
  batches_ = deal_out(config.batch * rates.size(), rates);
}

std::size_t Balance::own_batch() const {
  return batches_[static_cast<std::size_t>(runtime_.rank())];
}

std::string Balance::words() const { return fmt::format("{}", fmt::join(batches_, ", ")); }

bool Balance::after_step(Duration computed) {
  if (!measures_) return false;
  times_.push_back(to_us(computed));
  if (times_.size() < kSteps) return false;
  // The median excludes a slow first step and other outliers.
  const double rate = static_cast<double>(own_batch()) / std::max(median(std::move(times_)), 1e-3);
  times_.clear();
  std::vector<double> rates;
  for (const std::uint64_t bits : gather(runtime_, "rates", std::bit_cast<std::uint64_t>(rate))) {
    rates.push_back(std::bit_cast<double>(bits));
  }
  const std::size_t samples = std::accumulate(batches_.begin(), batches_.end(), std::size_t{0});
  std::vector<std::size_t> parts = deal_out(samples, rates);
  if (slowest(parts, rates) > (1.0 - kLeastGain) * slowest(batches_, rates)) return false;
  batches_ = std::move(parts);
  return true;
}

}  // namespace kolo::trainer
