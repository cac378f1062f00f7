#include "trainer/precision/precision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/base/error.h"

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
    try {
      parse_precision(text);
      ADD_FAILURE() << text;
    } catch (const KoloError& error) {
      EXPECT_EQ(error.error().code, ErrorCode::kUsage);
      EXPECT_THAT(error.what(), testing::HasSubstr("is not float32, bfloat16 or float16"));
    }
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
    try {
      parse_loss_scale(text, DType::kFloat32);
      ADD_FAILURE() << text;
    } catch (const KoloError& error) {
      EXPECT_EQ(error.error().code, ErrorCode::kConfig);
      EXPECT_THAT(error.what(), testing::HasSubstr("auto, off, dynamic or a number"));
    }
  }
}

}  // namespace
}  // namespace kolo::trainer
