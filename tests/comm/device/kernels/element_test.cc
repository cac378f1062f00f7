// Compares the arithmetic that kernels inline with the reference that defines its bits.

#include "comm/device/kernels/element.h"

#include <array>

#include <gtest/gtest.h>

#include "comm/base/visit_dtype.h"
#include "comm/kernels/combine.h"
#include "comm/kernels/reference_kernels.h"
#include "tests/comm/device/kernels/dtype_samples.h"

namespace kolo {
namespace {

constexpr std::size_t kCount = 4000;
constexpr std::uint32_t kSeed = 5;

TEST(ElementTest, ConvertsAllPairsAsTheReference) {
  for (const DType to : kNumberDTypes) {
    for (const DType from : kNumberDTypes) {
      for (const double scale : {1.0, 0.25, 1.0 / 3, -7.0}) {
        if (to == from && scale == 1.0) continue;  // this only copies bits
        SCOPED_TRACE(testing::Message() << to_string(from) << " to " << to_string(to) << " times "
                                        << scale << ", seed " << kSeed);
        const auto input = test::samples(from, kCount, kSeed);
        std::vector<std::byte> expected(kCount * size_of(to)), actual(kCount * size_of(to));
        reference::convert(to, expected.data(), from, input.data(), kCount, scale);
        visit_dtype(to, [&]<typename To>(std::type_identity<To>) {
          visit_dtype(from, [&]<typename From>(std::type_identity<From>) {
            const auto* in = reinterpret_cast<const From*>(input.data());
            auto* out = reinterpret_cast<To*>(actual.data());
            const auto factor = static_cast<element::Common<To, From>>(scale);
            for (std::size_t i = 0; i < kCount; ++i) {
              out[i] = element::convert<To>(in[i], factor);
            }
          });
        });
        EXPECT_EQ(actual, expected);
      }
    }
  }
}

template <typename Op>
void expect_reduces_as_reference(ReduceOp op, double scale) {
  for (const DType dtype : kNumberDTypes) {
    SCOPED_TRACE(testing::Message() << to_string(dtype) << " " << to_string(op) << " times "
                                    << scale << ", seed " << kSeed);
    std::array<std::vector<std::byte>, 3> inputs;
    std::array<const void*, 3> sources;
    for (std::uint32_t s = 0; s < 3; ++s) {
      inputs[s] = test::samples(dtype, kCount, kSeed + s);
      sources[s] = inputs[s].data();
    }
    std::vector<std::byte> expected(kCount * size_of(dtype)), actual(expected.size());
    reference::reduce(dtype, op, expected.data(), sources, kCount, scale);
    visit_dtype(dtype, [&]<typename T>(std::type_identity<T>) {
      using A = element::Accum<T>;
      const element::ElementScaling<T> scaling{Scaling(scale)};
      const auto at = [&](std::size_t s, std::size_t i) {
        return element::widen<A>(static_cast<const T*>(sources[s])[i]);
      };
      for (std::size_t i = 0; i < kCount; ++i) {
        const A sum = Op::apply(Op::apply(at(0, i), at(1, i)), at(2, i));
        reinterpret_cast<T*>(actual.data())[i] = element::scaled<T>(sum, scaling);
      }
    });
    EXPECT_EQ(actual, expected);
  }
}

TEST(ElementTest, ReducesAsTheReference) {
  for (const double scale : {1.0, 0.5, 1.0 / 3, 0.3}) {
    expect_reduces_as_reference<combine::Sum>(ReduceOp::kSum, scale);
    expect_reduces_as_reference<combine::Prod>(ReduceOp::kProd, scale);
    expect_reduces_as_reference<combine::Min>(ReduceOp::kMin, scale);
    expect_reduces_as_reference<combine::Max>(ReduceOp::kMax, scale);
  }
}

TEST(ElementTest, KnowsEveryValueThatIsNotFinite) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    EXPECT_EQ(element::non_finite(Float16{half}), !std::isfinite(to_float(Float16{half})));
    EXPECT_EQ(element::non_finite(BFloat16{half}), !std::isfinite(to_float(BFloat16{half})));
  }
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  for (const double value : {0.0, -1e308, kInfinity, -kInfinity, kNaN}) {
    EXPECT_EQ(element::non_finite(value), !std::isfinite(value));
    EXPECT_EQ(element::non_finite(static_cast<float>(value)),
              !std::isfinite(static_cast<float>(value)));
  }
  EXPECT_FALSE(element::non_finite(std::int64_t{-1}));
}

}  // namespace
}  // namespace kolo
