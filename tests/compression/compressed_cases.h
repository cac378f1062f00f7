#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/compression/compressed_job.h"
#include "tests/compression/sparse_numbers.h"
#include "tests/support/node_shapes.h"

/// Compression codecs of many shapes and the values of their ranks, all drawn from a seed.
namespace kolo::test {

inline constexpr std::uint32_t kGroupSeed = 97;

inline std::string text(const SparseOptions& options, const std::vector<int>& nodes) {
  std::string result = shape_text(nodes) + ", " + std::string(options.method->name) + ", " +
                       std::string(to_string(options.route)) + ", rule " +
                       std::to_string(static_cast<int>(options.rule)) + ", wire " +
                       std::string(to_string(options.wire)) + ", density " +
                       std::to_string(options.density) + ", tensors";
  for (const FeedbackTensor& tensor : options.tensors) result += " " + std::to_string(tensor.count);
  return result + ", seed " + std::to_string(kGroupSeed);
}

inline std::vector<Tensors> gradients_of(std::mt19937& random, const SparseOptions& options,
                                         int ranks, Number number) {
  std::vector<std::size_t> counts;
  for (const FeedbackTensor& tensor : options.tensors) counts.push_back(tensor.count);
  return gradients_of(random, counts, ranks, number);
}

inline std::vector<std::uint32_t> residual_bits(CompressedJob& job) {
  std::vector<std::uint32_t> bits;
  for (int rank = 0; rank < job.size(); ++rank) {
    for (const FeedbackState::Tensor& tensor : job.codec(rank).save().tensors) {
      for (const auto& values : {tensor.residual, tensor.velocity, tensor.of_sums, tensor.factor}) {
        const auto own = bits_of(std::span(values));
        bits.insert(bits.end(), own.begin(), own.end());
      }
    }
  }
  return bits;
}

using Sums = std::vector<std::vector<double>>;  ///< By tensor. Exact for `lattice` numbers.

inline Sums zeros(const SparseOptions& options) {
  Sums sums;
  for (const FeedbackTensor& tensor : options.tensors) sums.emplace_back(tensor.count);
  return sums;
}
inline void add(Sums& sums, const Tensors& values, double factor) {
  for (std::size_t t = 0; t < sums.size(); ++t) {
    for (std::size_t i = 0; i < sums[t].size(); ++i) sums[t][i] += factor * double{values[t][i]};
  }
}
inline Sums residual_sums(CompressedJob& job, const SparseOptions& options) {
  Sums sums = zeros(options);
  for (int rank = 0; rank < job.size(); ++rank) {
    const FeedbackState state = job.codec(rank).save();
    for (std::size_t p = 0; p < state.tensors.size(); ++p) {
      const SparsePart& part = job.codec(rank).parts()[p];
      for (std::size_t i = 0; i < part.count; ++i) {
        double& sum = sums[part.tensor][part.first + i];
        sum += double{state.tensors[p].residual[i]};
        if (!state.tensors[p].of_sums.empty()) sum += double{state.tensors[p].of_sums[i]};
      }
    }
  }
  return sums;
}

/// Draws numbers of ranks on nodes. 1 / ranks is a power of two, so averages of `lattice` numbers
/// are exact.
inline std::vector<int> any_nodes(std::mt19937& random) {
  const std::vector<int> shapes[] = {{1}, {2}, {4}, {1, 1}, {2, 2}, {4, 4}, {2, 2, 2, 2}, {3, 1}};
  return shapes[random() % std::size(shapes)];
}

inline SparseOptions any_options(std::mt19937& random,
                                 const CompressionMethod* method = &methods::topk) {
  std::vector<std::size_t> counts(1 + random() % 3);
  for (std::size_t& count : counts) count = 1 + random() % 2000;
  SparseOptions options = options_of(counts, any_of(random, {0.01, 0.1, 0.5, 1.0}));
  options.method = method;
  options.wire = any_of(random, kWires);
  options.scope = any_of(random, {SparseScope::kBetweenNodes, SparseScope::kFlat});
  const std::vector<SparseOptions> ways = all_ways(options);
  return ways[random() % ways.size()];
}

inline Placement any_placement(std::mt19937& random) {
  return random() % 2 == 0 ? Placement::kUser : Placement::kInPlace;
}

class GradientCodecTest : public testing::Test {
 protected:
  std::mt19937 random_{kGroupSeed};
};

}  // namespace kolo::test
