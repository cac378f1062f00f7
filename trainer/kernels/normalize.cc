#include "trainer/kernels/normalize.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

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

}  // namespace kolo::trainer
#endif
