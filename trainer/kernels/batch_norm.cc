#include "trainer/kernels/batch_norm.h"

#include <algorithm>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trainer/kernels/batch_norm.cc"
#include <hwy/foreach_target.h>  // must precede highway.h

#include <hwy/highway.h>

#include "trainer/kernels/for_each-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kolo::trainer {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void ColumnMoments(const float* x, std::size_t rows, std::size_t width, const float* pivot,
                   float* sums, float* squares) {
  for_each(width, [=](auto d, std::size_t j) HWY_ATTR {
    const auto p = hn::LoadU(d, pivot + j);
    auto sum = hn::Zero(d);
    auto square = hn::Zero(d);
    for (std::size_t i = 0; i < rows; ++i) {
      const auto centred = hn::Sub(hn::LoadU(d, x + i * width + j), p);
      sum = hn::Add(sum, centred);
      square = hn::MulAdd(centred, centred, square);
    }
    hn::StoreU(sum, d, sums + j);
    hn::StoreU(square, d, squares + j);
  });
}

void NormalizedSlopes(const float* dy, const float* x, std::size_t rows, std::size_t width,
                      const float* mean, const float* rstd, float* sums, float* slopes) {
  for_each(width, [=](auto d, std::size_t j) HWY_ATTR {
    const auto m = hn::LoadU(d, mean + j);
    const auto r = hn::LoadU(d, rstd + j);
    auto sum = hn::Zero(d);
    auto slope = hn::Zero(d);
    for (std::size_t i = 0; i < rows; ++i) {
      const auto v = hn::LoadU(d, dy + i * width + j);
      const auto normal = hn::Mul(hn::Sub(hn::LoadU(d, x + i * width + j), m), r);
      sum = hn::Add(sum, v);
      slope = hn::MulAdd(v, normal, slope);
    }
    hn::StoreU(sum, d, sums + j);
    hn::StoreU(slope, d, slopes + j);
  });
}

void ScaleAndShiftRow(const float* x, std::size_t width, const float* scale, const float* shift,
                      float* y) {
  for_each(width, [=](auto d, std::size_t j) HWY_ATTR {
    hn::StoreU(hn::MulAdd(hn::LoadU(d, x + j), hn::LoadU(d, scale + j), hn::LoadU(d, shift + j)), d,
               y + j);
  });
}

void CombineRow(const float* dy, const float* x, std::size_t width, const float* a, const float* b,
                const float* c, float* dx) {
  for_each(width, [=](auto d, std::size_t j) HWY_ATTR {
    const auto rest = hn::MulAdd(hn::LoadU(d, b + j), hn::LoadU(d, x + j), hn::LoadU(d, c + j));
    hn::StoreU(hn::MulAdd(hn::LoadU(d, a + j), hn::LoadU(d, dy + j), rest), d, dx + j);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace kolo::trainer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kolo::trainer {

HWY_EXPORT(ColumnMoments);
HWY_EXPORT(NormalizedSlopes);
HWY_EXPORT(ScaleAndShiftRow);
HWY_EXPORT(CombineRow);

namespace {

/// Calls block(first row, rows, memory for two sums of each column) for blocks of rows, and adds
/// the sums that it stores.
template <typename Block>
void add_by_blocks(std::size_t rows, std::span<double> first, std::span<double> second,
                   const Block& block) {
  constexpr std::size_t kBlockRows = 128;
  const std::size_t width = first.size();
  std::vector<float> partial(2 * width);
  for (std::size_t begin = 0; begin < rows; begin += kBlockRows) {
    block(begin, std::min(kBlockRows, rows - begin), partial.data(), partial.data() + width);
    for (std::size_t j = 0; j < width; ++j) {
      first[j] += static_cast<double>(partial[j]);
      second[j] += static_cast<double>(partial[width + j]);
    }
  }
}

}  // namespace

void add_column_moments(std::span<const float> x, std::span<const float> pivot,
                        std::span<double> sums, std::span<double> squares) {
  const std::size_t width = pivot.size();
  const auto kernel = HWY_DYNAMIC_DISPATCH(ColumnMoments);
  add_by_blocks(x.size() / width, sums, squares,
                [&](std::size_t begin, std::size_t rows, float* sum, float* square) {
                  kernel(x.data() + begin * width, rows, width, pivot.data(), sum, square);
                });
}

void scale_and_shift_columns(std::span<const float> x, std::span<const float> scale,
                             std::span<const float> shift, std::span<float> y) {
  const std::size_t width = scale.size();
  const auto kernel = HWY_DYNAMIC_DISPATCH(ScaleAndShiftRow);
  for (std::size_t at = 0; at < x.size(); at += width) {
    kernel(x.data() + at, width, scale.data(), shift.data(), y.data() + at);
  }
}

void add_normalized_slopes(std::span<const float> dy, std::span<const float> x,
                           std::span<const float> mean, std::span<const float> rstd,
                           std::span<double> sums, std::span<double> slopes) {
  const std::size_t width = mean.size();
  const auto kernel = HWY_DYNAMIC_DISPATCH(NormalizedSlopes);
  add_by_blocks(dy.size() / width, sums, slopes,
                [&](std::size_t begin, std::size_t rows, float* sum, float* slope) {
                  kernel(dy.data() + begin * width, x.data() + begin * width, rows, width,
                         mean.data(), rstd.data(), sum, slope);
                });
}

void combine_columns(std::span<const float> dy, std::span<const float> x, std::span<const float> a,
                     std::span<const float> b, std::span<const float> c, std::span<float> dx) {
  const std::size_t width = a.size();
  const auto kernel = HWY_DYNAMIC_DISPATCH(CombineRow);
  for (std::size_t at = 0; at < dy.size(); at += width) {
    kernel(dy.data() + at, x.data() + at, width, a.data(), b.data(), c.data(), dx.data() + at);
  }
}

}  // namespace kolo::trainer
#endif
