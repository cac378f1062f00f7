#include "trainer/kernels/kernels.h"

#include <algorithm>
#include <cmath>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trainer/kernels/normalize.cc"
#include <hwy/foreach_target.h>  // must precede highway.h

#include <hwy/highway.h>

#include "trainer/kernels/for_each-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kolo::trainer {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void LayerNormRow(const float* x, std::size_t width, const float* gain, const float* bias, float* y,
                  float* mean_out, float* rstd_out) {
  constexpr float kEpsilon = 1e-5f;
  const float scale = 1.0f / static_cast<float>(width);
  const float mean =
      scale * sum_over(width, [=](auto d, std::size_t i) HWY_ATTR { return hn::LoadU(d, x + i); });
  const float variance = scale * sum_over(width, [=](auto d, std::size_t i) HWY_ATTR {
                           const auto centred = hn::Sub(hn::LoadU(d, x + i), hn::Set(d, mean));
                           return hn::Mul(centred, centred);
                         });
  const float rstd = 1.0f / std::sqrt(variance + kEpsilon);
  for_each(width, [=](auto d, std::size_t i) HWY_ATTR {
    const auto normal = hn::Mul(hn::Sub(hn::LoadU(d, x + i), hn::Set(d, mean)), hn::Set(d, rstd));
    hn::StoreU(hn::MulAdd(normal, hn::LoadU(d, gain + i), hn::LoadU(d, bias + i)), d, y + i);
  });
  *mean_out = mean;
  *rstd_out = rstd;
}

// With n = (x - mean) rstd and g = dy gain:
//   dx = rstd (g - average(g) - n average(g n)),   dgain = sum(dy n),   dbias = sum(dy).
void LayerNormBackwardRow(const float* dy, const float* x, std::size_t width, const float* gain,
                          float mean, float rstd, float* dx, float* dgain, float* dbias) {
  const float scale = 1.0f / static_cast<float>(width);
  const auto normal = [=](auto d, std::size_t i) HWY_ATTR {
    return hn::Mul(hn::Sub(hn::LoadU(d, x + i), hn::Set(d, mean)), hn::Set(d, rstd));
  };
  const auto gained = [=](auto d, std::size_t i) HWY_ATTR {
    return hn::Mul(hn::LoadU(d, dy + i), hn::LoadU(d, gain + i));
  };
  const float average = scale * sum_over(width, gained);
  const float slope = scale * sum_over(width, [=](auto d, std::size_t i) HWY_ATTR {
                        return hn::Mul(gained(d, i), normal(d, i));
                      });
  for_each(width, [=](auto d, std::size_t i) HWY_ATTR {
    const auto n = normal(d, i);
    const auto rest = hn::Sub(gained(d, i), hn::Set(d, average));
    hn::StoreU(hn::Mul(hn::Set(d, rstd), hn::NegMulAdd(n, hn::Set(d, slope), rest)), d, dx + i);
    const auto v = hn::LoadU(d, dy + i);
    hn::StoreU(hn::MulAdd(v, n, hn::LoadU(d, dgain + i)), d, dgain + i);
    hn::StoreU(hn::Add(v, hn::LoadU(d, dbias + i)), d, dbias + i);
  });
}

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

void RotatePairs(const float* x, std::size_t count, const float* cosines, const float* sines,
                 std::size_t pairs, float* y) {
  for (std::size_t begin = 0; begin < count; begin += 2 * pairs) {
    const float* first = x + begin;
    const float* second = first + pairs;
    float* out = y + begin;
    for_each(pairs, [=](auto d, std::size_t i) HWY_ATTR {
      const auto a = hn::LoadU(d, first + i);
      const auto b = hn::LoadU(d, second + i);
      const auto c = hn::LoadU(d, cosines + i);
      const auto s = hn::LoadU(d, sines + i);
      hn::StoreU(hn::NegMulAdd(b, s, hn::Mul(a, c)), d, out + i);
      hn::StoreU(hn::MulAdd(a, s, hn::Mul(b, c)), d, out + pairs + i);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kolo::trainer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kolo::trainer {

HWY_EXPORT(LayerNormRow);
HWY_EXPORT(LayerNormBackwardRow);

void layer_norm(std::span<const float> x, std::span<const float> gain, std::span<const float> bias,
                std::span<float> y, std::span<float> mean, std::span<float> rstd) {
  const std::size_t width = gain.size();
  const auto row_kernel = HWY_DYNAMIC_DISPATCH(LayerNormRow);
  for (std::size_t row = 0; row < mean.size(); ++row) {
    row_kernel(&x[row * width], width, gain.data(), bias.data(), &y[row * width], &mean[row],
               &rstd[row]);
  }
}

void layer_norm_backward(std::span<const float> dy, std::span<const float> x,
                         std::span<const float> gain, std::span<const float> mean,
                         std::span<const float> rstd, std::span<float> dx, std::span<float> dgain,
                         std::span<float> dbias, Into into) {
  const std::size_t width = gain.size();
  const auto row_kernel = HWY_DYNAMIC_DISPATCH(LayerNormBackwardRow);
  if (into == Into::kOverwrite) {
    std::fill(dgain.begin(), dgain.end(), 0.0f);
    std::fill(dbias.begin(), dbias.end(), 0.0f);
  }
  for (std::size_t row = 0; row < mean.size(); ++row) {
    row_kernel(&dy[row * width], &x[row * width], width, gain.data(), mean[row], rstd[row],
               &dx[row * width], dgain.data(), dbias.data());
  }
}

HWY_EXPORT(ColumnMoments);
HWY_EXPORT(NormalizedSlopes);
HWY_EXPORT(ScaleAndShiftRow);
HWY_EXPORT(CombineRow);

namespace {

/// Calls block(first row, number of rows, sums, sums) for blocks of rows, where each call writes
/// two sums per column, and adds these up in `first` and `second`.
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

HWY_EXPORT(RotatePairs);

void rotate_pairs(std::span<const float> x, std::span<const float> cosines,
                  std::span<const float> sines, std::span<float> y) {
  HWY_DYNAMIC_DISPATCH(RotatePairs)
  (x.data(), x.size(), cosines.data(), sines.data(), cosines.size(), y.data());
}

}  // namespace kolo::trainer
#endif
