#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "comm/base/dtype.h"
#include "comm/schedule/schedule.h"
#include "compression/compression_method.h"
#include "compression/sparse_all_reduce.h"

/// Random gradients for tests of sparse exchanges, and their bits.
namespace kolo::test {

using Tensors = std::vector<std::vector<float>>;  ///< The tensors of one rank.
using Number = float (*)(std::mt19937&);

inline constexpr QuotaRule kRules[] = {QuotaRule::kQuota, QuotaRule::kLossless};
inline constexpr ExchangeRoute kRoutes[] = {ExchangeRoute::kPairwise, ExchangeRoute::kAllGather};
inline constexpr DType kWires[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

template <typename T, std::size_t N>
T any_of(std::mt19937& random, const T (&choices)[N]) {
  return choices[random() % N];
}

/// Returns a small integer times 2^-6, so that all sums of all steps are exact.
inline float lattice(std::mt19937& random) {
  return static_cast<float>(static_cast<int>(random() % 2001) - 1000) * 0x1p-6f;
}
inline float normal(std::mt19937& random) { return std::normal_distribution<float>()(random); }

/// Draw zeros, negative zeros, equal numbers, and subnormal numbers.
inline constexpr Number kEdgeNumbers[] = {
    [](std::mt19937&) { return 0.0f; }, [](std::mt19937&) { return -0.0f; },
    [](std::mt19937&) { return -2.5f; },
    [](std::mt19937& random) {
      return std::bit_cast<float>(static_cast<std::uint32_t>(random()) & 0x807fffffu);
    }};

/// Returns infinity in even rounds, NaN in odd ones.
inline float bad_number(int round) {
  return round % 2 == 0 ? std::numeric_limits<float>::infinity()
                        : std::numeric_limits<float>::quiet_NaN();
}

/// Returns options for tensors of `counts` elements, which are nearly square, with an incomplete
/// last row.
inline SparseOptions options_of(const std::vector<std::size_t>& counts, double density) {
  SparseOptions options{.density = density};
  for (const std::size_t count : counts) {
    options.tensors.push_back(
        {.name = "t" + std::to_string(options.tensors.size()),
         .count = count,
         .columns = 1 + static_cast<std::size_t>(std::sqrt(static_cast<double>(count)))});
  }
  return options;
}

/// Returns all methods with a codec. Each is tested for the common properties of codecs.
inline std::vector<const CompressionMethod*> coded_methods() {
  std::vector<const CompressionMethod*> methods;
  for (const CompressionMethod* method : compression_methods()) {
    if (method->make_codec != nullptr) methods.push_back(method);
  }
  return methods;
}

/// Returns the methods whose results and residuals are exact for `lattice` numbers: all but
/// products of factors.
inline std::vector<const CompressionMethod*> exact_methods() {
  std::vector<const CompressionMethod*> methods = coded_methods();
  std::erase_if(methods, [](const CompressionMethod* method) { return method->takes_rank; });
  return methods;
}

/// Returns options for every rule and every route that the method can use.
inline std::vector<SparseOptions> all_ways(const SparseOptions& options) {
  std::vector<SparseOptions> ways;
  for (const ExchangeRoute route : kRoutes) {
    if (route == ExchangeRoute::kAllGather && options.method->needs_owners) continue;
    SparseOptions way = options;
    way.route = route;
    for (const QuotaRule rule : kRules) ways.emplace_back(way).rule = rule;
  }
  return ways;
}

/// Returns options for every method, route and rule.
inline std::vector<SparseOptions> all_ways_of_all_methods(SparseOptions options) {
  std::vector<SparseOptions> all;
  for (const CompressionMethod* method : coded_methods()) {
    options.method = method;
    const std::vector<SparseOptions> ways = all_ways(options);
    all.insert(all.end(), ways.begin(), ways.end());
  }
  return all;
}

/// Returns the most bytes that a rank sends in the exchange of a sparse step.
inline ScheduleTraffic planned_exchange(int rank, const ProcessGrid& grid,
                                        const SparseOptions& options) {
  const BucketLayout bucket = sparse_bucket(options, ReduceOp::kSum, Placement::kUser);
  return traffic(compile_sparse(rank, bucket, grid, options), [](int) { return true; });
}

/// Draws tensors of `counts` elements for each rank.
inline std::vector<Tensors> gradients_of(std::mt19937& random, std::span<const std::size_t> counts,
                                         int ranks, Number number) {
  std::vector<Tensors> gradients(static_cast<std::size_t>(ranks));
  for (Tensors& own : gradients) {
    for (const std::size_t count : counts) {
      own.emplace_back(count);
      for (float& value : own.back()) value = number(random);
    }
  }
  return gradients;
}

inline std::vector<std::uint32_t> bits_of(std::span<const float> values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}
inline std::vector<std::uint32_t> bits_of(const Tensors& tensors) {
  std::vector<std::uint32_t> bits;
  for (const auto& tensor : tensors) {
    const auto own = bits_of(std::span(tensor));
    bits.insert(bits.end(), own.begin(), own.end());
  }
  return bits;
}

}  // namespace kolo::test
