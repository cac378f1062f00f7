#include "trainer/compute/gemm.h"

#include <oneapi/dnnl/dnnl.hpp>

#include "comm/base/check.h"

namespace kolo::trainer {
namespace {

char flag(const Operand& m) { return m.is_transposed ? 'T' : 'N'; }

dnnl_dim_t dim(std::size_t n) { return static_cast<dnnl_dim_t>(n); }

}  // namespace

void multiply(Operand a, Operand b, Matrix c, Into into) {
  check(a.columns == b.rows && a.rows == c.rows && b.columns == c.columns,
        "shapes of a matrix product do not fit");
  const float beta = into == Into::kAdd ? 1.0f : 0.0f;
  const dnnl::status status =
      dnnl::sgemm(flag(a), flag(b), dim(c.rows), dim(c.columns), dim(a.columns), 1.0f, a.data,
                  dim(a.stride), b.data, dim(b.stride), beta, c.data, dim(c.stride));
  ensure(status == dnnl::status::success, "sgemm failed");
}

}  // namespace kolo::trainer
