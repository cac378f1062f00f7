#include "comm/kernels/neutral.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

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
  if (target.count == 0) return;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
    case ReduceOp::kPremulSum:
    case ReduceOp::kBitOr:
    case ReduceOp::kBitXor:
      std::memset(target.data, 0, target.bytes());
      return;
    case ReduceOp::kBitAnd:
      std::memset(target.data, 0xFF, target.bytes());
      return;
    case ReduceOp::kMin:
    case ReduceOp::kMax:
    case ReduceOp::kProd:
      break;
  }
  visit_dtype(target.dtype, [&]<typename T>(std::type_identity<T>) {
    std::fill_n(static_cast<T*>(target.data), target.count, neutral<T>(op));
  });
}

}  // namespace kolo
