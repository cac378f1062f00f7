#include "benchmarks/codec/mean_error.h"

#include <map>

#include <gtest/gtest.h>

namespace kolo::bench {
namespace {

std::map<std::string, ErrorStats> errors(DType wire, int ranks, std::uint64_t seed,
                                         float deviation = 0.25f) {
  std::map<std::string, ErrorStats> result;
  const MeanErrorOptions options{.count = 20000, .deviation = deviation, .seed = seed};
  for (const MeanErrorRow& row : measure_mean_errors(wire, ranks, options)) {
    result[row.method] = row.error;
  }
  return result;
}

// One rounding is half a unit; the rest is the float32 sum's.
TEST(MeanErrorTest, OfTheFlatMeanIsOneRounding) {
  for (const DType wire : {DType::kFloat16, DType::kBFloat16}) {
    for (const int ranks : {2, 3, 6, 7, 12, 16, 32, 64}) {
      for (const float deviation : {0.25f, 1.0f}) {
        constexpr std::uint64_t kSeed = 1;
        const ErrorStats direct = errors(wire, ranks, kSeed, deviation)["direct"];
        EXPECT_LE(direct.most, 0.51) << to_string(wire) << ", " << ranks << " ranks, deviation "
                                     << deviation << ", seed " << kSeed;
        EXPECT_GT(direct.most, 0.4);
      }
    }
  }
}

TEST(MeanErrorTest, OfARingGrowsWithRanks) {
  for (const DType wire : {DType::kFloat16, DType::kBFloat16}) {
    auto few = errors(wire, 3, 1), many = errors(wire, 64, 1);
    EXPECT_GT(many["ring"].rms, 1.5 * few["ring"].rms);
    EXPECT_GT(many["ring"].rms, 3 * many["direct"].rms);
    EXPECT_LT(many["two-level"].rms, many["ring"].rms);
  }
}

// A third is not a 16-bit number: multiplied by it beforehand, every mean is off to one side.
TEST(MeanErrorTest, OfPremultipliedContributionsIsABias) {
  auto three = errors(DType::kBFloat16, 3, 1);
  EXPECT_GT(three["ring-premultiplied"].rms, three["direct"].rms);
}

}  // namespace
}  // namespace kolo::bench
