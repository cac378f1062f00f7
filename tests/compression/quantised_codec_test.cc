// Tests of quantised methods: codes and results equal plain arithmetic, bytes stay within limits.

#include "compression/quantised_codec.h"

#include <cmath>
#include <cstring>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "tests/compression/compressed_cases.h"
#include "tests/compression/quantised_oracle.h"

namespace kolo::test {
namespace {

class QuantisedCodecTest : public GradientCodecTest {};

std::vector<const CompressionMethod*> quantised_methods() {
  std::vector<const CompressionMethod*> methods;
  for (const CompressionMethod* method : coded_methods()) {
    if (method->codes_sums) methods.push_back(method);
  }
  return methods;
}

/// Draws numbers of widely different magnitudes, and zeros of both signs.
float any_magnitude(std::mt19937& random) {
  if (random() % 16 == 0) return random() % 2 == 0 ? 0.0f : -0.0f;
  return std::ldexp(normal(random), static_cast<int>(random() % 24) - 16);
}

constexpr Number kNumbers[] = {normal, lattice, any_magnitude};

/// Returns the codes that the only rank of a job sends to itself.
std::vector<std::uint8_t> codes_of(const SparseOptions& options, const Tensors& gradient,
                                   std::size_t step) {
  const auto grid = ProcessGrid::with_node_sizes({1});
  const auto codec = options.method->make_codec(0, grid, options);
  codec->set_step(step);
  std::vector<float> values;
  for (const auto& tensor : gradient) values.insert(values.end(), tensor.begin(), tensor.end());
  const PayloadForms forms = options.method->forms(sparse_layout(0, grid, options).plan);
  std::vector<std::byte> payload(forms.share.capacity);
  const std::span<std::byte> payloads[] = {payload};
  codec->encode({.data = reinterpret_cast<std::byte*>(values.data()), .count = values.size()},
                payloads);
  EXPECT_EQ(used_payload_bytes(payload), payload.size());
  std::vector<std::uint8_t> codes(payload.size() - 16);
  std::memcpy(codes.data(), payload.data() + 16, codes.size());
  return codes;
}

TEST_F(QuantisedCodecTest, EveryMethodHasAReference) {
  for (const CompressionMethod* method : quantised_methods()) {
    EXPECT_TRUE(plain_methods().contains(method->name)) << method->name;
  }
}

TEST_F(QuantisedCodecTest, CodesEqualTheReference) {
  for (const CompressionMethod* method : quantised_methods()) {
    for (const Number number : kNumbers) {
      for (std::size_t step = 0; step < 20; ++step) {
        SparseOptions options = options_of({1 + random_() % 3000, 1 + random_() % 300}, 0.1);
        options.method = method;
        options.threshold = any_of(random_, {0.5f, 0.3f, 1e-3f});
        SCOPED_TRACE(text(options, {1}));
        const auto gradients = gradients_of(random_, options, 1, number);
        QuantisedOracle expected(options, 1);
        expected.step(gradients, step);
        ASSERT_EQ(codes_of(options, gradients[0], step), expected.codes()[0]);
      }
    }
  }
}

// Compares results, residuals of values and residuals of sums on 1 to 8 ranks, by random rules.
TEST_F(QuantisedCodecTest, GivesTheBitsOfPlainArithmetic) {
  for (const CompressionMethod* method : quantised_methods()) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      SparseOptions options = any_options(random_, method);
      options.scope = SparseScope::kFlat;
      options.threshold = any_of(random_, {0.5f, 2.0f, 0.3f});
      const std::vector<int> nodes =
          ranks > 2 ? std::vector<int>{ranks - 1, 1} : std::vector{ranks};
      SCOPED_TRACE(text(options, nodes));
      CompressedJob job(nodes, options, any_placement(random_), random_());
      QuantisedOracle expected(options, ranks);
      for (std::size_t step = 0; step < 4; ++step) {
        const auto gradients = gradients_of(random_, options, ranks, any_of(random_, kNumbers));
        expected.step(gradients, step);
        ASSERT_TRUE(job.step(gradients));
        for (int rank = 0; rank < ranks; ++rank) {
          ASSERT_EQ(bits_of(job.rank(rank).results()), bits_of(std::span(expected.output())));
          std::size_t e = 0;
          for (const FeedbackState::Tensor& tensor : job.codec(rank).save().tensors) {
            for (std::size_t i = 0; i < tensor.residual.size(); ++i, ++e) {
              ASSERT_EQ(tensor.residual[i], expected.kept(rank)[e]) << "element " << e;
              const float of_sum = tensor.of_sums.empty() ? 0.0f : tensor.of_sums[i];
              ASSERT_EQ(of_sum, expected.owner(e) == rank ? expected.kept_sums()[e] : 0.0f);
            }
          }
        }
      }
    }
  }
}

// With 2-bit codes, sent and kept values add up exactly, up to 2^24 thresholds. With scales, a
// value far below the scale may be rounded up; float32 then rounds the kept value, by at most half
// a last place of the scale.
TEST_F(QuantisedCodecTest, WhatIsSentAndWhatIsKeptAddUp) {
  for (const CompressionMethod* method : quantised_methods()) {
    SparseOptions options = options_of({2000}, 0.1);
    options.method = method;
    options.rule = QuotaRule::kLossless;
    options.wire = DType::kFloat32;
    CompressedJob job({1}, options);
    const auto gradients = gradients_of(random_, options, 1, normal);
    ASSERT_TRUE(job.step(gradients));
    const std::vector<float> kept = job.codec(0).save().tensors[0].residual;
    std::size_t rounded = 0;
    for (std::size_t i = 0; i < kept.size(); ++i) {
      const float value = gradients[0][0][i], sent = job.rank(0).results()[0][i];
      ASSERT_EQ(kept[i], value - sent);
      if (double{sent} + double{kept[i]} == double{value}) continue;
      ++rounded;
      ASSERT_LE(std::fabs(double{sent} + double{kept[i]} - double{value}), std::ldexp(4.0, -25));
    }
    if (method->takes_threshold) {
      EXPECT_EQ(rounded, 0u);
    }
  }
}

TEST_F(QuantisedCodecTest, APayloadOfAnotherPlanIsRefused) {
  SparseOptions options = options_of({500}, 0.1);
  options.method = &methods::int8;
  const auto grid = ProcessGrid::with_node_sizes({1});
  const auto codec = options.method->make_codec(0, grid, options);
  std::vector<std::byte> payload(
      options.method->forms(sparse_layout(0, grid, options).plan).share.capacity);
  const std::span<std::byte> payloads[] = {payload};
  std::vector<float> values(500, 1.0f);
  codec->encode({.data = reinterpret_cast<std::byte*>(values.data()), .count = 500}, payloads);
  payload[0] ^= std::byte{1};
  EXPECT_THROW(codec->merge(payloads, payloads), KoloError);
}

// --- Dither -------------------------------------------------------------------------------------

TEST(DitherTest, NumbersAreSpreadEvenlyAndDifferByPlace) {
  constexpr std::size_t kCount = 1 << 16;
  std::set<float> firsts;
  const Dither one = Dither::of(0, 0, false, 0);
  double sum = 0;
  std::vector<int> tenths(10);
  for (std::size_t i = 0; i < kCount; ++i) {
    const float number = one(i);
    ASSERT_TRUE(number > 0 && number < 1);
    sum += double{number};
    ++tenths[static_cast<std::size_t>(number * 10)];
  }
  EXPECT_NEAR(sum / kCount, 0.5, 5 * std::sqrt(1.0 / 12 / kCount));
  for (const int in_tenth : tenths) {
    EXPECT_NEAR(in_tenth, kCount / 10.0, 5 * std::sqrt(kCount * 0.09));
  }
  for (const std::size_t step : {0u, 1u}) {
    for (const int rank : {0, 1}) {
      for (const bool of_sums : {false, true}) {
        for (const std::size_t element : {0u, 256u}) {
          const Dither dither = Dither::of(step, rank, of_sums, element);
          EXPECT_EQ(dither(0), Dither::of(step, rank, of_sums, element)(0));
          firsts.insert(dither(0));
        }
      }
    }
  }
  EXPECT_EQ(firsts.size(), 16u);
}

// Without feedback, the average result of many steps is the gradient.
TEST_F(QuantisedCodecTest, StochasticRoundingHasNoBias) {
  constexpr int kSteps = 1000;
  for (const CompressionMethod* method : quantised_methods()) {
    if (!method->is_close) continue;
    SparseOptions options = options_of({64}, 0.1);
    options.method = method;
    options.rule = QuotaRule::kLossless;
    options.wire = DType::kFloat32;
    options.feedback = false;
    CompressedJob job({1}, options);
    const auto gradients = gradients_of(random_, options, 1, normal);
    std::vector<double> sums(64);
    for (int step = 0; step < kSteps; ++step) {
      ASSERT_TRUE(job.step(gradients));
      for (std::size_t i = 0; i < 64; ++i) sums[i] += double{job.rank(0).results()[0][i]};
    }
    for (std::size_t i = 0; i < 64; ++i) {
      // Codes of values up to 4 are at most 2^-5 (int8) or 2^-2 (fp8) apart. The standard deviation
      // of a result is at most half of that.
      const double step = method == &methods::int8 ? 0x1p-5 : 0x1p-2;
      EXPECT_NEAR(sums[i] / kSteps, double{gradients[0][0][i]}, 5 * step / 2 / std::sqrt(kSteps))
          << method->name;
    }
  }
}

}  // namespace
}  // namespace kolo::test
