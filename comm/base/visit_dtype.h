#pragma once

#include <cstdint>
#include <type_traits>

#include "comm/base/check.h"
#include "comm/base/dtype.h"
#include "comm/base/half.h"

namespace kolo {

/// Calls `visitor(std::type_identity<T>{})`, where T is the C++ type of `dtype`.
///
/// Errors: KoloError(kInternal) unless `dtype` is in `kNumberDTypes`.
template <typename Visitor>
decltype(auto) visit_dtype(DType dtype, Visitor&& visitor) {
  switch (dtype) {
    case DType::kFloat64:
      return visitor(std::type_identity<double>{});
    case DType::kFloat16:
      return visitor(std::type_identity<Float16>{});
    case DType::kBFloat16:
      return visitor(std::type_identity<BFloat16>{});
    case DType::kInt32:
      return visitor(std::type_identity<std::int32_t>{});
    case DType::kInt64:
      return visitor(std::type_identity<std::int64_t>{});
    case DType::kUInt8:
      return visitor(std::type_identity<std::uint8_t>{});
    case DType::kInt8:
      return visitor(std::type_identity<std::int8_t>{});
    default:
      break;
  }
  ensure(dtype == DType::kFloat32, "kernels compute with numbers only");
  return visitor(std::type_identity<float>{});
}

}  // namespace kolo
