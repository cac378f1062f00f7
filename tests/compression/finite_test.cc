#include "compression/error_feedback.h"

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace kolo {
namespace {

constexpr std::uint32_t kSeed = 41;

/// Expects that each value of `bad` is found anywhere among `good` ones.
template <typename T>
void find_each(DType dtype, std::initializer_list<T> good, std::initializer_list<T> bad) {
  std::mt19937 random(kSeed);
  for (const std::size_t count : std::initializer_list<std::size_t>{0, 1, 7, 1023, 1025, 5000}) {
    std::vector<T> values(count);
    for (T& value : values) value = good.begin()[random() % good.size()];
    const BufferView view{values.data(), count, dtype};
    EXPECT_TRUE(all_finite(view)) << to_string(dtype) << ", seed " << kSeed;
    for (const T& value : bad) {
      for (int round = 0; count > 0 && round < 20; ++round) {
        const std::size_t place = round == 0 ? count - 1 : random() % count;
        const T before = values[place];
        values[place] = value;
        EXPECT_FALSE(all_finite(view)) << to_string(dtype) << " at " << place << " of " << count;
        values[place] = before;
      }
    }
  }
}

template <typename T>
void find_each_float(DType dtype) {
  using Limits = std::numeric_limits<T>;
  find_each<T>(dtype, {T{0}, -T{0}, Limits::max(), Limits::lowest(), Limits::denorm_min(), T{1}},
               {Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN()});
}

TEST(FiniteTest, FindsEveryInfinityAndNan) {
  find_each_float<float>(DType::kFloat32);
  find_each_float<double>(DType::kFloat64);
  find_each<std::uint16_t>(DType::kFloat16, {0, 0x8000, 0x7bff, 0xfbff, 1},
                           {0x7c00, 0xfc00, 0x7e00, 0x7c01});
  find_each<std::uint16_t>(DType::kBFloat16, {0, 0x8000, 0x7f7f, 0xff7f, 1},
                           {0x7f80, 0xff80, 0x7fc0, 0x7f81});
}

TEST(FiniteTest, LooksAtFloatsOfTheHostOnly) {
  std::vector<std::uint32_t> ones(100, 0xffffffffu);
  EXPECT_FALSE(all_finite({ones.data(), ones.size(), DType::kFloat32}));
  EXPECT_TRUE(all_finite({ones.data(), ones.size(), DType::kInt32}));
  EXPECT_TRUE(all_finite({nullptr, ones.size(), DType::kFloat32, MemoryKind::kDevice}));
}

}  // namespace
}  // namespace kolo
