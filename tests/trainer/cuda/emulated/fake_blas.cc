// Stands in for compute/blas.cc: plain loops over matrices in host memory. It has the epilogues
// that cuBLAS has for every dtype; for GELU the layers take their own kernels.

#include <map>
#include <vector>

#include "tests/trainer/cuda/references.h"
#include "trainer/cuda/compute/blas.h"

namespace kolo::trainer::cuda {

class Blas::Plan {
 public:
  MatmulShape shape;
};

struct Blas::State {
  std::map<MatmulShape, Plan> plans;
};

Blas::Blas(kolo::Device&, Stream&) : state_(std::make_unique<State>()) {}
Blas::~Blas() = default;

const Blas::Plan* Blas::find(const MatmulShape& shape) {
  if (shape.epilogue == Epilogue::kBiasGelu || shape.epilogue == Epilogue::kGeluGradient) {
    return nullptr;
  }
  return &state_->plans.try_emplace(shape, Plan{shape}).first->second;
}

const Blas::Plan& Blas::get(const MatmulShape& shape) { return *find(shape); }

void Blas::run(const Plan& plan, const MatmulArguments& x) {
  const MatmulShape& s = plan.shape;
  const bool a_is_plain = s.a == Layout::kPlain, b_is_plain = s.b == Layout::kPlain;
  const std::size_t a_stride = s.a_stride != 0 ? s.a_stride : (a_is_plain ? s.depth : s.rows);
  const std::size_t b_stride = b_is_plain ? s.columns : s.depth;
  const std::size_t d_stride = s.d_stride != 0 ? s.d_stride : s.columns;
  const std::size_t a_size = a_stride * (a_is_plain ? s.rows : s.depth), d_size = d_stride * s.rows;
  const std::vector<float> a = load_values(s.operand, x.a, a_size * s.batch);
  const std::vector<float> b = load_values(s.operand, x.b, s.depth * s.columns * s.batch);
  const bool has_bias = s.epilogue == Epilogue::kBias || s.epilogue == Epilogue::kBiasRelu;
  const std::vector<float> bias = load_values(s.result, x.bias, has_bias ? s.columns : 0);
  std::vector<float> d(d_size * s.batch), row_sums(s.rows);
  if (x.beta != 0.0f) d = load_values(s.result, x.c != nullptr ? x.c : x.d, d.size());
  for (std::size_t row = 0; row < s.rows * s.batch; ++row) {
    const std::size_t matrix = row / s.rows, i = row % s.rows;
    const auto a_of = [&](std::size_t k) {
      return a[matrix * a_size + (a_is_plain ? i * a_stride + k : k * a_stride + i)];
    };
    for (std::size_t k = 0; k < s.depth; ++k) row_sums[i] += a_of(k);
    for (std::size_t j = 0; j < s.columns; ++j) {
      float sum = 0.0f;
      for (std::size_t k = 0; k < s.depth; ++k) {
        const std::size_t at = b_is_plain ? k * b_stride + j : j * b_stride + k;
        sum += a_of(k) * b[matrix * s.depth * s.columns + at];
      }
      float& result = d[matrix * d_size + i * d_stride + j];
      result = x.alpha * sum + (x.beta != 0.0f ? x.beta * result : 0.0f);
      if (has_bias) result += bias[j];
      if (s.epilogue == Epilogue::kBiasRelu) result = std::max(result, 0.0f);
    }
  }
  store_values(s.result, d, x.d);
  if (s.epilogue == Epilogue::kBiasGradient) store_values(s.result, row_sums, x.bias_gradient);
}

}  // namespace kolo::trainer::cuda
