#include "trainer/precision/precision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "comm/base/error.h"
#include "tests/trainer/small_data.h"

namespace kolo::trainer {
namespace {

using Mode = LossScaler::Mode;

TEST(PrecisionTest, TakesTheFloatsThatModelsComputeIn) {
  EXPECT_EQ(parse_precision("float32"), DType::kFloat32);
  EXPECT_EQ(parse_precision("bfloat16"), DType::kBFloat16);
  EXPECT_EQ(parse_precision("float16"), DType::kFloat16);
  EXPECT_EQ(parse_precision("bf16"), DType::kBFloat16);
}

TEST(PrecisionTest, NamesTheChoices) {
  for (const char* text : {"", "float64", "int32", "fp8"}) {
    EXPECT_THAT(error_of([&] { parse_precision(text); }, ErrorCode::kUsage),
                testing::HasSubstr("is not float32, bfloat16 or float16"));
  }
}

TEST(LossScaleTest, AutoScalesWhatLeavesItsRange) {
  EXPECT_EQ(parse_loss_scale("auto", DType::kFloat32).mode, Mode::kOff);
  EXPECT_EQ(parse_loss_scale("auto", DType::kBFloat16).mode, Mode::kOff);
  EXPECT_EQ(parse_loss_scale("auto", DType::kFloat16).mode, Mode::kDynamic);
}

TEST(LossScaleTest, WordsAndNumbersWinOverThePrecision) {
  EXPECT_EQ(parse_loss_scale("off", DType::kFloat16).mode, Mode::kOff);
  const LossScaler::Options dynamic = parse_loss_scale("dynamic", DType::kFloat32);
  EXPECT_EQ(dynamic.mode, Mode::kDynamic);
  EXPECT_EQ(dynamic.scale, 65536.0f);
  const LossScaler::Options fixed = parse_loss_scale("1.5e3", DType::kFloat32);
  EXPECT_EQ(fixed.mode, Mode::kFixed);
  EXPECT_EQ(fixed.scale, 1500.0f);
}

TEST(LossScaleTest, NamesTheChoices) {
  for (const char* text : {"", "0", "-1", "inf", "nan", "1e99", "8x", "on"}) {
    EXPECT_THAT(error_of([&] { parse_loss_scale(text, DType::kFloat32); }, ErrorCode::kConfig),
                testing::HasSubstr("auto, off, dynamic or a number"));
  }
}

LossScaler dynamic(std::size_t clean_steps_to_double) {
  return LossScaler({.mode = Mode::kDynamic, .clean_steps_to_double = clean_steps_to_double});
}

TEST(LossScalerTest, OffIsAFactorOfOneWhateverHappens) {
  LossScaler scaler({.mode = Mode::kOff, .scale = 8.0f});
  EXPECT_FALSE(scaler.can_skip());
  scaler.update(true);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 1.0f);
}

TEST(LossScalerTest, AFixedScaleStaysAndSkips) {
  LossScaler scaler({.mode = Mode::kFixed, .scale = 1000.0f, .clean_steps_to_double = 1});
  for (const bool overflow : {true, false, false, true}) {
    EXPECT_TRUE(scaler.can_skip());
    scaler.update(overflow);
    EXPECT_EQ(scaler.scale(), 1000.0f);
  }
}

TEST(LossScalerTest, AFixedScaleThatAlwaysOverflowsSkipsNoMore) {
  LossScaler scaler({.mode = Mode::kFixed, .scale = 1000.0f});
  for (int step = 0; step < LossScaler::kMostOverflows; ++step) {
    EXPECT_TRUE(scaler.can_skip()) << step;
    scaler.update(true);
  }
  EXPECT_FALSE(scaler.can_skip());
  scaler.update(false);
  EXPECT_TRUE(scaler.can_skip());
}

TEST(LossScalerTest, ADynamicScaleStartsHighAndHalvesOnOverflow) {
  LossScaler scaler({.mode = Mode::kDynamic});
  EXPECT_EQ(scaler.scale(), 65536.0f);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 32768.0f);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 16384.0f);
}

TEST(LossScalerTest, DoublesAfterTwoThousandCleanStepsInARow) {
  LossScaler scaler({.mode = Mode::kDynamic});
  for (int step = 0; step < 1999; ++step) scaler.update(false);
  EXPECT_EQ(scaler.scale(), 65536.0f);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 131072.0f);
  EXPECT_EQ(scaler.state().steps, 0u);
}

TEST(LossScalerTest, AnOverflowStartsTheCountAnew) {
  LossScaler scaler = dynamic(3);
  for (const bool overflow : {false, false, true, false, false}) scaler.update(overflow);
  EXPECT_EQ(scaler.scale(), 32768.0f);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 65536.0f);
}

TEST(LossScalerTest, StaysWithinItsBounds) {
  LossScaler scaler = dynamic(1);
  for (int step = 0; step < 40; ++step) scaler.update(false);
  EXPECT_EQ(scaler.scale(), LossScaler::kMost);
  for (int step = 0; step < 24; ++step) {
    EXPECT_TRUE(scaler.can_skip());
    scaler.update(true);
  }
  EXPECT_EQ(scaler.scale(), LossScaler::kLeast);
  EXPECT_FALSE(scaler.can_skip());
  scaler.update(false);
  EXPECT_TRUE(scaler.can_skip());
}

TEST(LossScalerTest, ARestoredScalerGoesOnAsTheFirst) {
  LossScaler first = dynamic(4);
  for (const bool overflow : {true, false, false, false}) first.update(overflow);
  LossScaler second = dynamic(4);
  second.restore(first.state());
  first.update(false);
  second.update(false);
  EXPECT_EQ(first.scale(), 65536.0f);
  EXPECT_EQ(first.state(), second.state());
}

TEST(LossScalerTest, OverflowsAtAFixedScaleCountOnInARestoredScaler) {
  const LossScaler::Options options{.mode = Mode::kFixed, .scale = 1000.0f};
  LossScaler first(options);
  for (int step = 0; step + 1 < LossScaler::kMostOverflows; ++step) first.update(true);
  LossScaler second(options);
  second.restore(first.state());
  EXPECT_TRUE(second.can_skip());
  second.update(true);
  EXPECT_FALSE(second.can_skip());
}

TEST(LossScalerTest, RefusesScalesThatAreNone) {
  for (const float scale : {0.0f, -2.0f, std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_THROW(LossScaler({.mode = Mode::kFixed, .scale = scale}), UsageError) << scale;
    EXPECT_THROW(dynamic(1).restore({.scale = scale, .steps = 0}), UsageError) << scale;
  }
}

}  // namespace
}  // namespace kolo::trainer
