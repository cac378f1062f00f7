#include "benchmarks/codec/mean_error.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <span>

#include "comm/base/half.h"
#include "comm/kernels/reduce_kernels.h"

namespace kolo::bench {
namespace {

using Wire = std::vector<std::uint16_t>;

float widened(DType wire, std::uint16_t bits) {
  return wire == DType::kFloat16 ? to_float(Float16{bits}) : to_float(BFloat16{bits});
}

std::uint16_t rounded(DType wire, float value) {
  return wire == DType::kFloat16 ? to_float16(value).bits : to_bfloat16(value).bits;
}

/// Returns the distance between neighbouring values of the wire dtype at `value`.
double unit_at(DType wire, double value) {
  const bool half = wire == DType::kFloat16;
  const int least = half ? -14 : -126;
  const int exponent = value == 0 ? least : std::max(std::ilogb(value), least);
  return std::ldexp(1.0, exponent - (half ? 10 : 7));
}

/// Returns the contributions of all ranks, each rounded once to the wire dtype.
std::vector<Wire> contributions(DType wire, int ranks, const MeanErrorOptions& options) {
  std::mt19937_64 random(options.seed);
  std::normal_distribution<float> normal(1.0f, options.deviation);
  std::vector<Wire> sent;
  std::vector<float> values(options.count);
  for (int rank = 0; rank < ranks; ++rank) {
    for (float& value : values) value = normal(random);
    to_wire(wire, sent.emplace_back(options.count).data(), DType::kFloat32, values.data(),
            options.count, 0);
  }
  return sent;
}

Wire sum(DType wire, std::span<const Wire> sources, double scale) {
  std::vector<const void*> pointers;
  for (const Wire& source : sources) pointers.push_back(source.data());
  Wire result(sources[0].size());
  reduce(wire, ReduceOp::kSum, result.data(), pointers, result.size(), scale, Overflow::kLargest);
  return result;
}

Wire two_level(DType wire, std::span<const Wire> sent, std::size_t per_node) {
  std::vector<Wire> nodes;
  for (std::size_t first = 0; first < sent.size(); first += per_node) {
    nodes.push_back(sum(wire, sent.subspan(first, per_node), 1.0));
  }
  return sum(wire, nodes, 1.0 / static_cast<double>(sent.size()));
}

/// Computes the result of a ring: the sum of part p starts at rank p + 1 and ends at rank p.
Wire ring(DType wire, std::span<const Wire> sent, float factor) {
  const std::size_t ranks = sent.size();
  Wire result(sent[0].size());
  for (std::size_t i = 0; i < result.size(); ++i) {
    const std::size_t part = i * ranks / result.size();
    std::uint16_t partial = sent[(part + 1) % ranks][i];
    for (std::size_t hop = 2; hop <= ranks; ++hop) {
      const std::uint16_t own = sent[(part + hop) % ranks][i];
      partial = rounded(wire, widened(wire, partial) + widened(wire, own));
    }
    result[i] = rounded(wire, widened(wire, partial) * factor);
  }
  return result;
}

Wire premultiplied_ring(DType wire, std::span<const Wire> sent) {
  const float factor = widened(wire, rounded(wire, 1.0f / static_cast<float>(sent.size())));
  std::vector<Wire> multiplied(sent.begin(), sent.end());
  for (Wire& values : multiplied) {
    for (std::uint16_t& bits : values) bits = rounded(wire, widened(wire, bits) * factor);
  }
  return ring(wire, multiplied, 1.0f);
}

ErrorStats compare(DType wire, std::span<const Wire> sent, const Wire& result) {
  ErrorStats error;
  double squares = 0;
  for (std::size_t i = 0; i < result.size(); ++i) {
    double mean = 0;
    for (const Wire& values : sent) mean += double{widened(wire, values[i])};
    mean /= static_cast<double>(sent.size());
    const double units = std::abs(double{widened(wire, result[i])} - mean) / unit_at(wire, mean);
    if (std::isnan(units) || units > error.most) error.most = units;  // NaN stays
    squares += units * units;
  }
  error.rms = std::sqrt(squares / static_cast<double>(result.size()));
  return error;
}

/// Returns the size of the largest equal nodes with at most eight ranks each, or 1 if the ranks do
/// not divide into several equal nodes.
int ranks_per_node(int ranks) {
  for (int size = std::min(8, ranks / 2); size > 1; --size) {
    if (ranks % size == 0) return size;
  }
  return 1;
}

}  // namespace

std::vector<MeanErrorRow> measure_mean_errors(DType wire, int ranks,
                                              const MeanErrorOptions& options) {
  const std::vector<Wire> sent = contributions(wire, ranks, options);
  const double scale = 1.0 / ranks;
  std::vector<MeanErrorRow> rows;
  const auto add = [&](std::string method, int per_node, const Wire& result) {
    rows.push_back({.wire = wire,
                    .ranks = ranks,
                    .method = std::move(method),
                    .per_node = per_node,
                    .error = compare(wire, sent, result)});
  };
  add("direct", 1, sum(wire, sent, scale));
  if (const int per_node = ranks_per_node(ranks); per_node > 1) {
    add("two-level", per_node, two_level(wire, sent, static_cast<std::size_t>(per_node)));
  }
  add("ring", 1, ring(wire, sent, static_cast<float>(scale)));
  add("ring-premultiplied", 1, premultiplied_ring(wire, sent));
  return rows;
}

}  // namespace kolo::bench
