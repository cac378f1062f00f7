#include "comm/base/reduction.h"

#include <cmath>

#include <gmock/gmock.h>

#include "comm/base/error.h"
#include "runtime/buckets/storage_type.h"

namespace kolo {
namespace {

std::string refusal(const Reduction& reduction, DType dtype, std::string_view name = "x") {
  try {
    check_reduction(name, reduction, dtype);
  } catch (const UsageError& e) {
    return e.what();
  }
  return {};
}

TEST(DTypes, HaveNamesThatAreRead) {
  for (const DType dtype : kAllDTypes) EXPECT_EQ(parse_dtype(to_string(dtype)), dtype);
  for (const ReduceOp op : kEveryReduceOp) EXPECT_EQ(parse_reduce_op(to_string(op)), op);
  EXPECT_EQ(parse_dtype("c64"), DType::kComplex64);
  EXPECT_EQ(parse_reduce_op("bxor"), ReduceOp::kBitXor);
  EXPECT_EQ(parse_dtype("int7"), std::nullopt);
  EXPECT_EQ(parse_reduce_op("mean"), std::nullopt);
}

TEST(StorageTypes, AreNumbersOfTheSameSize) {
  for (const DType dtype : kAllDTypes) {
    const StorageType storage = StorageType::of(dtype);
    EXPECT_TRUE(is_number(storage.dtype)) << to_string(dtype);
    EXPECT_EQ(storage.per_element * size_of(storage.dtype), size_of(dtype)) << to_string(dtype);
    EXPECT_TRUE(!is_number(dtype) || storage.dtype == dtype) << to_string(dtype);
  }
}

TEST(StorageTypes, TakeTheOperationsOfWhatTheyCarry) {
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kEveryReduceOp) {
      EXPECT_TRUE(!takes(op, dtype) || takes(carried(op, dtype), StorageType::of(dtype).dtype))
          << to_string(op) << " of " << to_string(dtype);
    }
  }
}

TEST(Reductions, RefuseAllElseByName) {
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kEveryReduceOp) {
      const std::string text = refusal(op, dtype);
      if (takes(op, dtype)) {
        EXPECT_EQ(text, "");
      } else {
        EXPECT_THAT(text, testing::HasSubstr("'x': " + std::string(to_string(op)) +
                                             " does not take " + std::string(to_string(dtype))));
      }
    }
  }
  EXPECT_THAT(
      refusal(ReduceOp::kPremulSum, DType::kInt8),
      testing::HasSubstr("only float32, float64, float16, bfloat16, complex64, complex128"));
  EXPECT_THAT(refusal(ReduceOp::kMin, DType::kComplex64, ""),
              testing::AllOf(testing::HasSubstr("min does not take complex64"),
                             testing::Not(testing::HasSubstr("''"))));
}

TEST(Reductions, ScaleFloatingPointAndComplexElementsOnly) {
  for (const DType dtype : kAllDTypes) {
    if (!takes(ReduceOp::kSum, dtype)) continue;
    for (const Scales scales : {Scales{.before = 0.5}, Scales{.after = 2}}) {
      const std::string text = refusal({ReduceOp::kSum, scales}, dtype);
      if (is_float(dtype) || is_complex(dtype)) {
        EXPECT_EQ(text, "");
      } else {
        EXPECT_THAT(text, testing::HasSubstr("'x': elements of " + std::string(to_string(dtype)) +
                                             " cannot be scaled"));
      }
    }
  }
  EXPECT_THAT(refusal({ReduceOp::kSum, {.before = std::nan("")}}, DType::kFloat32),
              testing::HasSubstr("nan before and 1 after are not both finite"));
  EXPECT_THAT(refusal({ReduceOp::kSum, {.after = std::numeric_limits<double>::infinity()}},
                      DType::kFloat32),
              testing::HasSubstr("1 before and inf after are not both finite"));
}

}  // namespace
}  // namespace kolo
