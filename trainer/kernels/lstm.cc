#include "trainer/kernels/lstm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trainer/kernels/lstm.cc"
#include <hwy/foreach_target.h>  // must precede highway.h

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "trainer/kernels/for_each-inl.h"
#include "trainer/kernels/logistic-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kolo::trainer {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void LstmRow(float* gates, const float* previous, std::size_t width, float* cells, float* squashed,
             float* states) {
  for_each(width, [=](auto d, std::size_t j) HWY_ATTR {
    float* at = gates + j;
    const auto i = Logistic(d, hn::LoadU(d, at));
    const auto f = Logistic(d, hn::LoadU(d, at + width));
    const auto g = hn::Tanh(d, hn::LoadU(d, at + 2 * width));
    const auto o = Logistic(d, hn::LoadU(d, at + 3 * width));
    const auto cell = hn::MulAdd(f, hn::LoadU(d, previous + j), hn::Mul(i, g));
    const auto tanh = hn::Tanh(d, cell);
    hn::StoreU(i, d, at);
    hn::StoreU(f, d, at + width);
    hn::StoreU(g, d, at + 2 * width);
    hn::StoreU(o, d, at + 3 * width);
    hn::StoreU(cell, d, cells + j);
    hn::StoreU(tanh, d, squashed + j);
    hn::StoreU(hn::Mul(o, tanh), d, states + j);
  });
}

// The slope of σ is σ (1 - σ), that of tanh is 1 - tanh².
void LstmBackwardRow(const float* dy, const float* state_gradient, const float* previous,
                     const float* squashed, std::size_t width, float* cell_gradient, float* gates) {
  for_each(width, [=](auto d, std::size_t j) HWY_ATTR {
    float* at = gates + j;
    const auto i = hn::LoadU(d, at);
    const auto f = hn::LoadU(d, at + width);
    const auto g = hn::LoadU(d, at + 2 * width);
    const auto o = hn::LoadU(d, at + 3 * width);
    const auto tanh = hn::LoadU(d, squashed + j);
    const auto one = hn::Set(d, 1.0f);
    const auto dstate = hn::Add(hn::LoadU(d, dy + j), hn::LoadU(d, state_gradient + j));
    const auto dtanh = hn::Mul(dstate, o);
    const auto dcell =
        hn::MulAdd(dtanh, hn::NegMulAdd(tanh, tanh, one), hn::LoadU(d, cell_gradient + j));
    const auto slope = [=](auto v) HWY_ATTR { return hn::Mul(v, hn::Sub(one, v)); };
    hn::StoreU(hn::Mul(hn::Mul(dcell, g), slope(i)), d, at);
    hn::StoreU(hn::Mul(hn::Mul(dcell, hn::LoadU(d, previous + j)), slope(f)), d, at + width);
    hn::StoreU(hn::Mul(hn::Mul(dcell, i), hn::NegMulAdd(g, g, one)), d, at + 2 * width);
    hn::StoreU(hn::Mul(hn::Mul(dstate, tanh), slope(o)), d, at + 3 * width);
    hn::StoreU(hn::Mul(dcell, f), d, cell_gradient + j);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace kolo::trainer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kolo::trainer {

HWY_EXPORT(LstmRow);
HWY_EXPORT(LstmBackwardRow);

void lstm_cells(std::span<float> gates, std::span<const float> previous, std::size_t width,
                std::span<float> cells, std::span<float> squashed, std::span<float> states) {
  const auto row_kernel = HWY_DYNAMIC_DISPATCH(LstmRow);
  for (std::size_t at = 0; at < cells.size(); at += width) {
    row_kernel(&gates[4 * at], &previous[at], width, &cells[at], &squashed[at], &states[at]);
  }
}

void lstm_cells_backward(std::span<const float> dy, std::span<const float> state_gradient,
                         std::span<const float> previous, std::span<const float> squashed,
                         std::size_t width, std::span<float> cell_gradient,
                         std::span<float> gates) {
  const auto row_kernel = HWY_DYNAMIC_DISPATCH(LstmBackwardRow);
  for (std::size_t at = 0; at < dy.size(); at += width) {
    row_kernel(&dy[at], &state_gradient[at], &previous[at], &squashed[at], width,
               &cell_gradient[at], &gates[4 * at]);
  }
}

}  // namespace kolo::trainer
#endif
