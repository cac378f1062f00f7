#include "comm/kernels/reduce_kernels.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <span>

#include <gmock/gmock.h>
#include <hwy/targets.h>

#include "comm/base/error.h"
#include "comm/base/half.h"
#include "comm/base/reduction.h"
#include "comm/base/visit_dtype.h"
#include "comm/kernels/reference_kernels.h"
#include "comm/kernels/simd_kernels.h"
#include "tests/support/sanitized.h"
#include "tests/support/simd_targets.h"

namespace kolo {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::size_t kCounts[] = {0, 1, 7, 8, 31, 32, 33, 127, 1009, 2111};
constexpr std::size_t kLarge = (1u << (test::kSanitized ? 14 : 16)) + 3;
constexpr double kScales[] = {1.0, 0.25, 0.3, 1.0 / 3.0};
constexpr std::uint64_t kSeed = 20240229;

template <typename T>
Bytes bytes_of(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

template <typename T>
std::vector<T> values_of(const Bytes& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// Returns infinities, all kinds of NaN, both zeros, subnormals, ties and numbers near overflow.
template <typename T>
std::vector<T> specials() {
  if constexpr (std::is_same_v<T, float>) {
    std::vector<float> values;
    for (const std::uint32_t bits :
         {0x7f800000u, 0xff800000u, 0x7fc00000u, 0xffc00001u, 0x7f800001u, 0x00000000u,
          0x80000000u, 0x00000001u, 0x807fffffu, 0x3f801000u, 0x3f803000u, 0x3f808000u,
          0x3f818000u, 0x477fe000u, 0x477fefffu, 0x477ff000u, 0xc7800000u, 0x33000000u,
          0x33000001u, 0x387fe000u, 0x387ff000u, 0x7f7fffffu}) {
      values.push_back(std::bit_cast<float>(bits));
    }
    return values;
  } else if constexpr (std::is_same_v<T, double>) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return {kInfinity,
            -kInfinity,
            std::numeric_limits<double>::quiet_NaN(),
            std::bit_cast<double>(0xfff0000000000001u),
            0.0,
            -0.0,
            5e-324,
            1e-40,
            -1e-46,
            1e300,
            3.4028235677973366e38,
            1.0 + 0x1p-24,
            1.0 + 0x1p-11 + 0x1p-50,
            65519.999,
            -65520.0,
            2147483647.5,
            -2147483649.0,
            9.3e18};
  } else if constexpr (std::is_same_v<T, Float16>) {
    return {{0x7c00}, {0xfc00}, {0x7e00}, {0xfe01}, {0x7c01}, {0x0000}, {0x8000},
            {0x0001}, {0x83ff}, {0x0400}, {0x7bff}, {0xfbff}, {0x3c01}};
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return {{0x7f80}, {0xff80}, {0x7fc0}, {0xffc1}, {0x7f81}, {0x0000}, {0x8000},
            {0x0001}, {0x807f}, {0x0080}, {0x7f7f}, {0xff7f}, {0x3f81}};
  } else {
    return {std::numeric_limits<T>::min(), std::numeric_limits<T>::max(), 0, 1, static_cast<T>(-1)};
  }
}

// Returns one third special values, one third small numbers, and one third arbitrary bits.
template <typename T>
std::vector<T> random_values(std::mt19937_64& random, std::size_t count) {
  static const std::vector<T> special = specials<T>();
  std::vector<T> values(count);
  for (T& value : values) {
    const std::uint64_t bits = random();
    const int small = static_cast<int>(random() % 2001) - 1000;
    switch (random() % 3) {
      case 0:
        value = special[bits % special.size()];
        break;
      case 1:
        if constexpr (std::is_same_v<T, Float16>) {
          value = to_float16(static_cast<float>(small) / 8);
        } else if constexpr (std::is_same_v<T, BFloat16>) {
          value = to_bfloat16(static_cast<float>(small) / 8);
        } else {
          value = static_cast<T>(small);
        }
        break;
      default:
        std::memcpy(&value, &bits, sizeof(T));
    }
  }
  return values;
}

Bytes random_bytes(std::mt19937_64& random, DType dtype, std::size_t count) {
  return visit_dtype(dtype, [&]<typename T>(std::type_identity<T>) {
    return bytes_of(random_values<T>(random, count));
  });
}

std::string name(DType dtype) { return std::string(to_string(dtype)); }
std::string name(ReduceOp op) { return std::string(to_string(op)); }

using Case = std::tuple<DType, ReduceOp>;

class ReduceTest : public testing::TestWithParam<Case> {
 protected:
  // Reduces `num_sources` arrays of `count` elements, each of which starts at an odd element, on
  // all targets, and compares the bytes with the reference. Bytes beside the result must not
  // change.
  void expect_reference(std::size_t num_sources, std::size_t count, double scale,
                        Overflow overflow = Overflow::kInfinity) {
    const auto [dtype, op] = GetParam();
    const std::size_t width = size_of(dtype);
    std::mt19937_64 random(kSeed + count);
    std::vector<Bytes> inputs;
    std::vector<const void*> sources;
    for (std::size_t s = 0; s < num_sources; ++s) {
      inputs.push_back(random_bytes(random, dtype, count + s % 3));
      sources.push_back(inputs.back().data() + (s % 3) * width);
    }
    const Bytes canvas = random_bytes(random, dtype, count + 2);
    Bytes expected = canvas;
    reference::reduce(dtype, op, expected.data() + width, sources, count, scale, overflow);
    for (const std::int64_t target : test::simd_targets()) {
      const test::ScopedSimdTarget scoped(target);
      for (const Stores stores : {Stores::kCached, Stores::kStreaming}) {
        Bytes actual = canvas;
        void* const output = actual.data() + width;
        reduce(dtype, op, std::span(&output, 1), sources, count, scale, overflow, stores);
        ASSERT_EQ(actual, expected)
            << kernel_target() << ", " << num_sources << " sources, count " << count << ", scale "
            << scale << ", stores " << static_cast<int>(stores) << ", seed " << kSeed;
      }
    }
  }
};

TEST_P(ReduceTest, AllTargetsGiveTheBitsOfTheReference) {
  for (const std::size_t num_sources : {1u, 2u, 3u, 4u, 5u, 9u, 17u}) {
    for (const std::size_t count : kCounts) {
      for (const double scale : kScales) expect_reference(num_sources, count, scale);
    }
  }
}

TEST_P(ReduceTest, AllTargetsKeepWhatIsFiniteFinite) {
  for (const std::size_t num_sources : {1u, 2u, 5u}) {
    for (const std::size_t count : kCounts) {
      for (const double scale : kScales) {
        expect_reference(num_sources, count, scale, Overflow::kLargest);
      }
    }
  }
}

TEST_P(ReduceTest, LargeCounts) { expect_reference(3, kLarge, 1.0); }

// One pass writes several outputs, some of which may be sources.
TEST_P(ReduceTest, AllOutputsGetTheBitsOfTheReference) {
  const auto [dtype, op] = GetParam();
  const std::size_t width = size_of(dtype);
  for (const std::size_t num_sources : {1u, 2u, 3u, 5u, 9u}) {
    for (const std::size_t num_outputs : {2u, 3u, 8u}) {
      for (const std::size_t count : {std::size_t{1}, std::size_t{333}, std::size_t{2500}}) {
        std::mt19937_64 random(kSeed + count);
        std::vector<Bytes> inputs;
        std::vector<const void*> sources;
        for (std::size_t s = 0; s < num_sources; ++s) {
          inputs.push_back(random_bytes(random, dtype, count));
          sources.push_back(inputs.back().data());
        }
        Bytes expected(count * width);
        reference::reduce(dtype, op, expected.data(), sources, count, 0.5);
        for (const std::int64_t target : test::simd_targets()) {
          const test::ScopedSimdTarget scoped(target);
          std::vector<Bytes> fresh(num_outputs, Bytes((count + num_outputs) * width));
          const auto expect_all = [&, dtype = dtype, op = op](const std::vector<void*>& outputs,
                                                              const std::vector<const void*>& read,
                                                              Stores stores) {
            reduce(dtype, op, outputs, read, count, 0.5, Overflow::kInfinity, stores);
            for (std::size_t o = 0; o < num_outputs; ++o) {
              ASSERT_EQ(std::memcmp(outputs[o], expected.data(), expected.size()), 0)
                  << kernel_target() << ", " << num_sources << " sources, output " << o << " of "
                  << num_outputs << ", count " << count << ", seed " << kSeed;
            }
          };
          std::vector<void*> outputs;
          for (Bytes& output : fresh) outputs.push_back(output.data() + width);
          expect_all(outputs, sources, Stores::kStreaming);
          // As many outputs as possible are sources. Each of the others is misaligned differently.
          std::vector<Bytes> memory = inputs;
          std::vector<const void*> read;
          for (const Bytes& input : memory) read.push_back(input.data());
          for (std::size_t o = 0; o < num_outputs; ++o) {
            outputs[o] = o < num_sources ? memory[o].data() : fresh[o].data() + o * width;
          }
          expect_all(outputs, read, num_outputs == 3 ? Stores::kStreaming : Stores::kCached);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(ReduceTest, DestinationMayBeAnySource) {
  const auto [dtype, op] = GetParam();
  constexpr std::size_t kCount = 333;
  std::mt19937_64 random(kSeed);
  std::vector<Bytes> inputs;
  for (int s = 0; s < 3; ++s) inputs.push_back(random_bytes(random, dtype, kCount));
  const std::vector<const void*> sources = {inputs[0].data(), inputs[1].data(), inputs[2].data()};
  Bytes expected(inputs[0].size());
  reference::reduce(dtype, op, expected.data(), sources, kCount, 0.5);
  for (std::size_t s = 0; s < sources.size(); ++s) {
    const Bytes kept = inputs[s];
    reduce(dtype, op, inputs[s].data(), sources, kCount, 0.5);
    EXPECT_EQ(inputs[s], expected) << "in place of source " << s << ", seed " << kSeed;
    std::memcpy(inputs[s].data(), kept.data(), kept.size());
  }
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const DType dtype : kNumberDTypes) {
    for (const ReduceOp op : kEveryReduceOp) {
      if (takes(op, dtype)) cases.emplace_back(dtype, op);
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Kernels, ReduceTest, testing::ValuesIn(all_cases()),
                         [](const auto& param_info) {
                           return name(std::get<0>(param_info.param)) + "_" +
                                  name(std::get<1>(param_info.param));
                         });

class ConvertTest : public testing::TestWithParam<std::tuple<DType, DType>> {};

TEST_P(ConvertTest, AllTargetsGiveTheBitsOfTheReference) {
  const auto [from, to] = GetParam();
  const std::size_t width = size_of(to);
  std::vector<std::size_t> counts(std::begin(kCounts), std::end(kCounts));
  counts.push_back(kLarge);
  for (const std::size_t count : counts) {
    std::mt19937_64 random(kSeed + count);
    const Bytes input = random_bytes(random, from, count + 1);
    const std::byte* const src = input.data() + size_of(from);
    const Bytes canvas = random_bytes(random, to, count + 2);
    for (const double scale : kScales) {
      Bytes expected = canvas;
      reference::convert(to, expected.data() + width, from, src, count, scale);
      for (const std::int64_t target : test::simd_targets()) {
        const test::ScopedSimdTarget scoped(target);
        Bytes actual = canvas;
        convert(to, actual.data() + width, from, src, count, scale);
        ASSERT_EQ(actual, expected)
            << kernel_target() << ", count " << count << ", scale " << scale << ", seed " << kSeed;
        actual = canvas;
        convert(to, actual.data() + width, from, src, count, scale, Stores::kStreaming);
        ASSERT_EQ(actual, expected) << kernel_target() << ", streaming, count " << count
                                    << ", scale " << scale << ", seed " << kSeed;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, ConvertTest,
                         testing::Combine(testing::ValuesIn(kNumberDTypes),
                                          testing::ValuesIn(kNumberDTypes)),
                         [](const auto& param_info) {
                           return name(std::get<0>(param_info.param)) + "_to_" +
                                  name(std::get<1>(param_info.param));
                         });

// Lengths are near the least length for which the processor's block copy is used if it is fast.
TEST(LongCopies, ChangeNothingBesideThem) {
  std::mt19937_64 random(kSeed);
  const Bytes input = random_bytes(random, DType::kUInt8, 5 * kLeastBlockBytes);
  for (const std::size_t bytes :
       {kLeastBlockBytes - 1, kLeastBlockBytes, 3 * kLeastBlockBytes + 7}) {
    for (const std::size_t from : {0u, 1u, 36u}) {
      for (const std::size_t to : {1u, 4u, 32u, 63u, 64u, 1000u}) {
        Bytes actual(bytes + 1100, std::byte{7});
        Bytes expected = actual;
        std::copy_n(input.begin() + static_cast<std::ptrdiff_t>(from), bytes,
                    expected.begin() + static_cast<std::ptrdiff_t>(to));
        convert(DType::kUInt8, actual.data() + to, DType::kUInt8, input.data() + from, bytes, 1.0);
        ASSERT_EQ(actual, expected) << bytes << " bytes from " << from << " to " << to;
      }
    }
  }
}

// Tests every alignment of the caller's memory. Other bytes around it must not change.
TEST(Exchange, AllTargetsGiveTheBytesOfTheReference) {
  for (const std::size_t bytes : {0u, 1u, 63u, 64u, 300u, 4095u, 4096u, 5001u, 40'003u}) {
    for (const std::size_t shift : {0u, 1u, 4u, 32u, 63u}) {
      std::mt19937_64 random(kSeed + bytes);
      const Bytes canvas = random_bytes(random, DType::kUInt8, bytes + 130);
      const Bytes former = random_bytes(random, DType::kUInt8, bytes + 130);
      const Bytes in = random_bytes(random, DType::kUInt8, bytes + 130);
      Bytes expected = canvas, expected_slot = former;
      reference::exchange(expected.data() + shift, expected_slot.data() + 1, in.data() + 2, bytes);
      for (const std::int64_t target : test::simd_targets()) {
        const test::ScopedSimdTarget scoped(target);
        for (const Stores stores : {Stores::kCached, Stores::kStreaming}) {
          Bytes actual = canvas, slot = former;
          exchange(actual.data() + shift, slot.data() + 1, in.data() + 2, bytes, stores);
          ASSERT_EQ(actual, expected) << kernel_target() << ", bytes " << bytes << " at " << shift
                                      << ", stores " << static_cast<int>(stores);
          ASSERT_EQ(slot, expected_slot) << kernel_target() << ", bytes " << bytes;
        }
      }
    }
  }
}

TEST(KernelTarget, IsTheOneInUse) {
  for (const std::int64_t target : test::simd_targets()) {
    const test::ScopedSimdTarget scoped(target);
    EXPECT_STREQ(kernel_target(), hwy::TargetName(target));
  }
}

}  // namespace
}  // namespace kolo
