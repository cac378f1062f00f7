// Tests of PowerSGD beyond those of all methods: its steps and bytes equal plain arithmetic in
// float64, within bounds that rounding to float32 allows.

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "compression/quantised_codec.h"
#include "tests/compression/compressed_cases.h"
#include "tests/compression/plain_matrix.h"

namespace kolo::test {
namespace {

class PowerSgdTest : public GradientCodecTest {};

/// One step in float64, from the saved state of all ranks, with whole tensors as parts.
struct PlainStep {
  Matrix result;             // the average
  std::vector<Matrix> kept;  // by rank
  Matrix right;              // the sum of the right factors
  double magnitude = 0;      // the sum of the norms of all ranks' matrices
  double least_share = 1;    // of a column of the left factor that is independent of others
};

PlainStep plain_step(const MatrixPart& part, const std::vector<Matrix>& sums, Matrix right) {
  PlainStep step;
  for (auto& row : right) {
    const double length = norm({row});
    for (double& value : row) value /= length;
  }
  Matrix left = zero_matrix(part.rows(), part.rank);
  for (const Matrix& sum : sums) {
    step.magnitude += norm(sum);
    const Matrix own = product(sum, transposed(right));
    for (std::size_t i = 0; i < left.size(); ++i) {
      for (std::size_t k = 0; k < part.rank; ++k) left[i][k] += own[i][k];
    }
  }
  std::tie(left, step.least_share) = orthonormal(left);
  step.right = zero_matrix(part.rank, part.columns);
  for (Matrix sum : sums) {
    const Matrix own = product(transposed(left), sum);
    const Matrix sent = product(left, own);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      for (std::size_t j = 0; j < part.columns; ++j) sum[i][j] -= sent[i][j];
    }
    for (std::size_t k = 0; k < part.rank; ++k) {
      for (std::size_t j = 0; j < part.columns; ++j) step.right[k][j] += own[k][j];
    }
    step.kept.push_back(sum);
  }
  step.result = product(left, step.right);
  for (auto& row : step.result) {
    for (double& value : row) value /= static_cast<double>(sums.size());
  }
  return step;
}

SparseOptions power_sgd(const std::vector<std::size_t>& counts, std::size_t rank = 3) {
  SparseOptions options = options_of(counts, 0.01);
  options.method = &methods::power_sgd;
  options.matrix_rank = rank;
  options.scope = SparseScope::kFlat;
  return options;
}

// Each step begins with the state that the job saved, so that errors do not add up over steps. The
// left factor is a sum of `columns` products and `ranks` numbers; a column that loses the share
// 1 - s to the columns before it magnifies their relative error by 1 / s. Two products follow.
TEST_F(PowerSgdTest, StepsEqualPlainArithmetic) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (const std::size_t rank : {1u, 2u, 5u}) {
      const SparseOptions options = power_sgd({2500 + random_() % 900, 700}, rank);
      const std::vector<int> nodes =
          ranks > 2 ? std::vector<int>{ranks - 1, 1} : std::vector{ranks};
      SCOPED_TRACE(text(options, nodes) + ", rank " + std::to_string(rank));
      CompressedJob job(nodes, options, any_placement(random_), random_());
      for (std::size_t step = 0; step < 4; ++step) {
        std::vector<FeedbackState> before, after;
        for (int r = 0; r < ranks; ++r) before.push_back(job.codec(r).save());
        const auto gradients = gradients_of(random_, options, ranks, normal);
        ASSERT_TRUE(job.step(gradients));
        for (int r = 0; r < ranks; ++r) after.push_back(job.codec(r).save());
        for (std::size_t t = 0; t < options.tensors.size(); ++t) {
          const FeedbackTensor& tensor = options.tensors[t];
          const MatrixPart part = matrix_part(0, tensor.count, tensor.columns, rank);
          std::vector<float> right = before[0].tensors[t].factor;
          ASSERT_EQ(right.size(), part.right_count());
          for (std::size_t k = 0; k < rank && step == 0; ++k) {
            const auto random =
                Dither::of(0, static_cast<int>(k), false, tensor_offsets(options)[t]);
            for (std::size_t j = 0; j < part.columns; ++j) {
              right[k * part.columns + j] = random(j) - 0.5f;
            }
          }
          std::vector<Matrix> sums;
          for (std::size_t r = 0; r < gradients.size(); ++r) {
            Matrix& sum = sums.emplace_back(matrix_of(part, gradients[r][t]));
            const Matrix kept = matrix_of(part, before[r].tensors[t].residual);
            for (std::size_t i = 0; i < sum.size(); ++i) {
              for (std::size_t j = 0; j < part.columns; ++j) sum[i][j] += kept[i][j];
            }
          }
          const PlainStep plain = plain_step(part, sums, rows_of(right, part.columns));
          ASSERT_GT(plain.least_share, 0.01);
          const double terms = static_cast<double>(part.columns + part.rows() + rank) + 2.0 * ranks;
          const double error = 2 * static_cast<double>(rank) * terms * kRounding * plain.magnitude /
                               plain.least_share;
          ASSERT_LT(error, 0.05 * plain.magnitude / std::sqrt(tensor.count));
          const auto expect_near = [&](std::span<const float> got, const Matrix& expected) {
            const std::vector<double> elements = elements_of(part, expected);
            for (std::size_t i = 0; i < part.count; ++i) ASSERT_NEAR(got[i], elements[i], error);
          };
          for (int r = 0; r < ranks; ++r) {
            const auto index = static_cast<std::size_t>(r);
            expect_near(job.rank(r).results()[t], plain.result);
            expect_near(after[index].tensors[t].residual, plain.kept[index]);
            EXPECT_EQ(after[index].tensors[t].factor, after[0].tensors[t].factor);
          }
          const Matrix factor = rows_of(after[0].tensors[t].factor, part.columns);
          for (std::size_t k = 0; k < rank; ++k) {
            for (std::size_t j = 0; j < part.columns; ++j) {
              ASSERT_NEAR(factor[k][j], plain.right[k][j], error);
            }
          }
        }
      }
    }
  }
}

/// Returns the most by which the mass of one step may change: each rank rounds its sum, the
/// products of its factors and their differences, and all ranks round the sums of the right factors
/// and their products. No number exceeds the norm of the tensors, times the rank for sums of
/// products.
double mass_error(const SparseOptions& options, const Sums& magnitudes, int ranks) {
  double squares = 0;
  for (const auto& tensor : magnitudes) {
    for (const double value : tensor) squares += value * value;
  }
  const auto rank = static_cast<double>(options.matrix_rank);
  return kRounding * std::sqrt(squares) * rank * (ranks * (2 * rank + 2) + 2 * rank + 4);
}

// The steps are warm-up, steady state, and a flush at the end, which leaves no residual.
TEST_F(PowerSgdTest, MassIsConserved) {
  for (int round = 0; round < 24; ++round) {
    SparseOptions options = any_options(random_, &methods::power_sgd);
    const std::vector<int> nodes = any_nodes(random_);
    options.warm_up = {.dense_steps = random_() % 2};
    SCOPED_TRACE("round " + std::to_string(round) + ": " + text(options, nodes));
    CompressedJob job(nodes, options, any_placement(random_), random_());
    Sums put_in = zeros(options), came_out = put_in, magnitudes = put_in;
    double error = 0;
    for (int step = 0; step < 8; ++step) {
      const bool is_last = step == 7;
      const auto gradients = gradients_of(random_, options, job.size(), lattice);
      for (int rank = 0; is_last && rank < job.size(); ++rank) job.codec(rank).flush_next();
      ASSERT_TRUE(job.step(gradients));
      for (const Tensors& own : gradients) {
        add(put_in, own, 1);
        for (std::size_t t = 0; t < own.size(); ++t) {
          for (std::size_t i = 0; i < own[t].size(); ++i) {
            magnitudes[t][i] += std::fabs(double{own[t][i]});
          }
        }
      }
      add(came_out, job.rank(0).results(), job.size());
      error += mass_error(options, magnitudes, job.size());
      const Sums left = residual_sums(job, options);
      for (std::size_t t = 0; t < left.size(); ++t) {
        for (std::size_t i = 0; i < left[t].size(); ++i) {
          ASSERT_NEAR(came_out[t][i] + left[t][i], put_in[t][i], error) << "step " << step;
          if (is_last) {
            ASSERT_EQ(left[t][i], 0.0);
          }
        }
      }
    }
  }
}

// On other ranks and nodes, residuals are worth as much, and ranks agree whatever factors they
// have.
TEST_F(PowerSgdTest, ARemappedStateGoesOn) {
  for (int round = 0; round < 8; ++round) {
    SparseOptions options = any_options(random_, &methods::power_sgd);
    const std::vector<int> before = any_nodes(random_), after = any_nodes(random_);
    SCOPED_TRACE(text(options, before) + " to " + shape_text(after));
    CompressedJob old_job(before, options), new_job(after, options);
    for (int step = 0; step < 3; ++step) {
      ASSERT_TRUE(old_job.step(gradients_of(random_, options, old_job.size(), lattice)));
    }
    std::vector<FeedbackState> states;
    for (int rank = 0; rank < old_job.size(); ++rank) states.push_back(old_job.codec(rank).save());
    for (int rank = 0; rank < new_job.size(); ++rank) {
      new_job.codec(rank).load(remap(states, new_job.codec(rank).share(1)));
    }
    const Sums expected = residual_sums(old_job, options), got = residual_sums(new_job, options);
    for (std::size_t t = 0; t < got.size(); ++t) {
      for (std::size_t i = 0; i < got[t].size(); ++i) {
        ASSERT_NEAR(got[t][i], expected[t][i], 1e-4 * (1 + std::fabs(expected[t][i])));
      }
    }
    FeedbackState other = new_job.codec(0).save();
    for (FeedbackState::Tensor& tensor : other.tensors) tensor.factor.clear();
    new_job.codec(0).load(other);
    ASSERT_TRUE(new_job.step(gradients_of(random_, options, new_job.size(), normal)));
    for (int rank = 1; rank < new_job.size(); ++rank) {
      ASSERT_EQ(bits_of(new_job.rank(rank).results()), bits_of(new_job.rank(0).results()));
    }
  }
}

// A sum of at most `rank` products of vectors is sent nearly whole, in the first step. The next
// steps, whose sums have only one product, draw new rows for the factors that became zero.
TEST_F(PowerSgdTest, SumsOfLowRankAreSentWhole) {
  SparseOptions options = power_sgd({60 * 50}, 3);
  options.tensors[0].columns = 50;
  CompressedJob job({2, 1}, options);
  for (const std::size_t terms : {3u, 1u, 0u, 3u}) {
    auto gradients = gradients_of(random_, options, 3, [](std::mt19937&) { return 0.0f; });
    std::vector<float> average(3000);
    for (std::size_t term = 0; term < terms; ++term) {
      const std::vector<float> a = numbers(random_, 60), b = numbers(random_, 50);
      for (std::size_t i = 0; i < 3000; ++i) {
        for (Tensors& own : gradients) own[0][i] += a[i / 50] * b[i % 50];
      }
    }
    ASSERT_TRUE(job.step(gradients));
    for (std::size_t i = 0; i < 3000; ++i) {
      ASSERT_NEAR(job.rank(0).results()[0][i], gradients[0][0][i], 1e-3) << terms << " terms";
    }
    EXPECT_LT(job.codec(0).residual_norm(0), 1e-2);
  }
}

// A rank sends a projection of its sum, so its residual is never longer than that sum.
TEST_F(PowerSgdTest, ResidualsDoNotGrowByTheDifferencesOfRanks) {
  const SparseOptions options = power_sgd({3000}, 2);
  CompressedJob job({2}, options);
  auto gradients = gradients_of(random_, options, 2, normal);
  for (float& value : gradients[1][0]) value = 0;
  for (int step = 0; step < 4; ++step) {
    const double before = job.codec(0).residual_norm(0);
    double squares = 0;
    for (const float value : gradients[0][0]) squares += double{value} * double{value};
    ASSERT_TRUE(job.step(gradients));
    EXPECT_LE(job.codec(0).residual_norm(0), before + std::sqrt(squares));
    EXPECT_EQ(job.codec(1).residual_norm(0), 0.0);
  }
}

}  // namespace
}  // namespace kolo::test
