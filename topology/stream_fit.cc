#include "topology/stream_fit.h"

#include <algorithm>
#include <cstddef>

namespace kolo {
namespace {

constexpr std::size_t kParts = 8;

/// The slope of the line that is nearest to the arrivals, or 0 if they are too few for one.
/// Messages that come two at a time move it less than they would move the line through the ends.
double slope(Arrivals arrivals) {
  const auto count = static_cast<double>(arrivals.size());
  double bytes = 0, us = 0;
  for (const auto& arrival : arrivals) {
    bytes += arrival.bytes / count;
    us += arrival.us / count;
  }
  double rise = 0, run = 0;
  for (const auto& arrival : arrivals) {
    rise += (arrival.us - us) * (arrival.bytes - bytes);
    run += (arrival.us - us) * (arrival.us - us);
  }
  return run > 0 ? rise / run : 0;
}

}  // namespace

double quantile(std::vector<double> values, double share) {
  const auto index = static_cast<std::size_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(index),
                   values.end());
  return values[index];
}

std::vector<double> part_rates(Arrivals arrivals) {
  constexpr std::size_t kLeastPart = 8, kMostSlopes = 128;
  const Arrivals later(
      std::find_if(arrivals.begin(), arrivals.end(),
                   [&](const auto& arrival) { return arrival.us >= arrivals.back().us / kParts; }),
      arrivals.end());
  const std::size_t part = std::min(std::max(kLeastPart, later.size() / kParts), later.size() - 1);
  const std::size_t step = 1 + later.size() / kMostSlopes;
  std::vector<double> rates;
  for (std::size_t first = 0; first + part < later.size(); first += step) {
    rates.push_back(slope(later.subspan(first, part + 1)));
  }
  return rates;
}

std::optional<StreamFit> fit_stream(Arrivals arrivals) {
  if (arrivals.empty() || arrivals.back().us <= 0) return std::nullopt;
  constexpr double kMostAhead = 1.5;   // of the rate of all, which pauses make less
  constexpr double kLeastBurst = 1.5;  // of the rate; a pause at the start left 1.6 and 1.9
  const double rate = quantile(part_rates(arrivals), 0.5);
  const double rate_of_all = arrivals.back().bytes / arrivals.back().us;
  if (rate <= 0 || rate > kMostAhead * rate_of_all) {
    return StreamFit{rate_of_all, 0};
  }
  double burst = 0;
  for (const auto& arrival : arrivals) burst = std::max(burst, arrival.bytes - rate * arrival.us);
  const auto through = std::find_if(arrivals.begin(), arrivals.end(),
                                    [&](const auto& arrival) { return arrival.bytes >= burst; });
  const bool is_shaped = through->us < burst / rate / kLeastBurst;
  return StreamFit{rate, is_shaped ? burst : 0};
}

}  // namespace kolo
