#include "comm/kernels/neutral.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "comm/base/check.h"
#include "comm/base/half.h"
#include "comm/base/visit_dtype.h"

namespace kolo {
namespace {

template <typename T>
T from_float(float value) {
  if constexpr (std::is_same_v<T, Float16>) {
    return to_float16(value);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return to_bfloat16(value);
  } else {
    return static_cast<T>(value);
  }
}

template <typename T>
T neutral(ReduceOp op) {
  if (op == ReduceOp::kProd) return from_float<T>(1);
  if constexpr (std::is_integral_v<T>) {
    return op == ReduceOp::kMin ? std::numeric_limits<T>::max() : std::numeric_limits<T>::lowest();
  } else {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    return from_float<T>(op == ReduceOp::kMin ? kInfinity : -kInfinity);
  }
}

}  // namespace

void fill_neutral(const BufferView& target, ReduceOp op) {
  ensure(is_number_op(op), "only operations on numbers have a neutral element here");
  if (target.count == 0) return;
  if (op == ReduceOp::kSum || op == ReduceOp::kAverage) {
    std::memset(target.data, 0, target.bytes());
    return;
  }
  visit_dtype(target.dtype, [&]<typename T>(std::type_identity<T>) {
    std::fill_n(static_cast<T*>(target.data), target.count, neutral<T>(op));
  });
}

}  // namespace kolo
