#include "comm/kernels/neutral.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <vector>

#include "comm/base/reduction.h"
#include "comm/kernels/reduce_kernels.h"

namespace kolo {
namespace {

// Combined with any number in either order, it leaves that number's bits alone.
TEST(Neutral, ChangesNoResultOfAnyOperation) {
  for (const DType dtype : kNumberDTypes) {
    for (const ReduceOp op : kAllReduceOps) {
      if (!takes(op, dtype)) continue;
      const std::vector<double> numbers = {0, 1, 3, 100, -1, -100, 1e30, -1e30};
      const std::size_t count = numbers.size();
      std::vector<std::byte> values(count * size_of(dtype)), neutral(values), result(values);
      convert(dtype, values.data(), DType::kFloat64, numbers.data(), count, 1.0);
      fill_neutral({neutral.data(), count, dtype}, op);
      for (const bool is_first : {true, false}) {
        const void* const sources[] = {is_first ? neutral.data() : values.data(),
                                       is_first ? values.data() : neutral.data()};
        reduce(dtype, op, result.data(), sources, count, 1.0);
        EXPECT_EQ(result, values) << to_string(op) << " of " << to_string(dtype);
      }
    }
  }
}

TEST(Neutral, OfNoElementsTouchesNothing) {
  fill_neutral({nullptr, 0, DType::kFloat32}, ReduceOp::kSum);
}

}  // namespace
}  // namespace kolo
