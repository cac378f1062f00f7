#include "trainer/kernels/vector.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trainer/kernels/vector.cc"
#include <hwy/foreach_target.h>  // must precede highway.h

#include <hwy/highway.h>

#include "trainer/kernels/for_each-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kolo::trainer {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void Add(const float* a, const float* b, std::size_t count, float* out) {
  for_each(count, [=](auto d, std::size_t i) HWY_ATTR {
    hn::StoreU(hn::Add(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, out + i);
  });
}

void MultiplyElements(const float* a, const float* b, std::size_t count, float* out) {
  for_each(count, [=](auto d, std::size_t i) HWY_ATTR {
    hn::StoreU(hn::Mul(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, out + i);
  });
}

void AddScaled(const float* values, std::size_t count, float factor, float* out) {
  for_each(count, [=](auto d, std::size_t i) HWY_ATTR {
    const auto sum =
        hn::MulAdd(hn::LoadU(d, values + i), hn::Set(d, factor), hn::LoadU(d, out + i));
    hn::StoreU(sum, d, out + i);
  });
}

void Scale(float* values, std::size_t count, float factor) {
  for_each(count, [=](auto d, std::size_t i) HWY_ATTR {
    hn::StoreU(hn::Mul(hn::LoadU(d, values + i), hn::Set(d, factor)), d, values + i);
  });
}

// Adds to `sums`. Four rows at a time, so that the sums are read and written once for four rows.
void SumRows(const float* matrix, std::size_t rows, std::size_t width, float* sums) {
  std::size_t row = 0;
  for (; row + 4 <= rows; row += 4) {
    const float* m = matrix + row * width;
    for_each(width, [=](auto d, std::size_t j) HWY_ATTR {
      auto sum = hn::LoadU(d, sums + j);
      sum = hn::Add(sum, hn::LoadU(d, m + j));
      sum = hn::Add(sum, hn::LoadU(d, m + width + j));
      sum = hn::Add(sum, hn::LoadU(d, m + 2 * width + j));
      sum = hn::Add(sum, hn::LoadU(d, m + 3 * width + j));
      hn::StoreU(sum, d, sums + j);
    });
  }
  for (; row < rows; ++row) Add(sums, matrix + row * width, width, sums);
}

double SumOfSquares(const float* values, std::size_t count) {
  constexpr std::size_t kBlock = 1024;
  double sum = 0.0;
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const float* block = values + begin;
    sum += sum_over(std::min(kBlock, count - begin), [=](auto d, std::size_t i) HWY_ATTR {
      const auto v = hn::LoadU(d, block + i);
      return hn::Mul(v, v);
    });
  }
  return sum;
}

}  // namespace HWY_NAMESPACE
}  // namespace kolo::trainer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kolo::trainer {

HWY_EXPORT(Add);
HWY_EXPORT(MultiplyElements);
HWY_EXPORT(AddScaled);
HWY_EXPORT(Scale);
HWY_EXPORT(SumRows);
HWY_EXPORT(SumOfSquares);

void add(std::span<const float> a, std::span<const float> b, std::span<float> out) {
  HWY_DYNAMIC_DISPATCH(Add)(a.data(), b.data(), out.size(), out.data());
}

void multiply_elements(std::span<const float> a, std::span<const float> b, std::span<float> out) {
  HWY_DYNAMIC_DISPATCH(MultiplyElements)(a.data(), b.data(), out.size(), out.data());
}

void add_scaled(std::span<const float> values, float factor, std::span<float> out) {
  HWY_DYNAMIC_DISPATCH(AddScaled)(values.data(), out.size(), factor, out.data());
}

void scale(std::span<float> values, float factor) {
  HWY_DYNAMIC_DISPATCH(Scale)(values.data(), values.size(), factor);
}

void repeat_row(std::span<const float> row, std::span<float> matrix) {
  for (auto at = matrix.begin(); at != matrix.end();) at = std::copy(row.begin(), row.end(), at);
}

void sum_rows(std::span<const float> matrix, std::span<float> sums, Into into) {
  if (into == Into::kOverwrite) std::fill(sums.begin(), sums.end(), 0.0f);
  HWY_DYNAMIC_DISPATCH(SumRows)
  (matrix.data(), matrix.size() / sums.size(), sums.size(), sums.data());
}

double sum_of_squares(std::span<const float> values) {
  return HWY_DYNAMIC_DISPATCH(SumOfSquares)(values.data(), values.size());
}

}  // namespace kolo::trainer
#endif
