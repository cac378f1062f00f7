#include "comm/kernels/reduce_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "comm/base/check.h"
#include "comm/base/half.h"
#include "comm/base/visit_dtype.h"
#include "comm/kernels/reference_kernels.h"
#include "comm/kernels/simd_kernels.h"

namespace kolo {

void reduce(DType dtype, ReduceOp op, std::span<void* const> outputs,
            std::span<const void* const> sources, std::size_t count, double scale,
            Overflow overflow, Stores stores) {
  check(!sources.empty() && !outputs.empty(),
        "a reduction needs at least one source and one output");
  if (simd::reduce(dtype, op, outputs, sources, count, scale, overflow, stores)) return;
  reference::reduce(dtype, op, outputs, sources, count, scale, overflow);
}

void rescale(DType dtype, void* data, std::size_t count, double scale) {
  if (scale == 1.0 || count == 0) return;
  const void* const source = data;
  reduce(dtype, ReduceOp::kSum, data, {&source, 1}, count, scale);
}

void convert(DType dst_dtype, void* dst, DType src_dtype, const void* src, std::size_t count,
             double scale, Stores stores) {
  const bool is_copy = dst_dtype == src_dtype && scale == 1.0;
  if (is_copy && dst == src) return;
  const std::size_t bytes = count * size_of(dst_dtype);
  if (is_copy && stores == Stores::kCached && bytes >= kLeastBlockBytes && has_block_copy()) {
    return block_copy(dst, src, bytes);
  }
  if (simd::convert(dst_dtype, dst, src_dtype, src, count, scale, stores)) return;
  reference::convert(dst_dtype, dst, src_dtype, src, count, scale);
}

void exchange(void* out, void* slot, const void* in, std::size_t bytes, Stores stores) {
  if (simd::exchange(out, slot, in, bytes, stores)) return;
  reference::exchange(out, slot, in, bytes);
}

const char* kernel_target() { return simd::target(); }

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
T identity(Identity which) {
  if (which == Identity::kOne) return from_float<T>(1);
  const bool is_highest = which == Identity::kHighest;
  if constexpr (std::is_integral_v<T>) {
    return is_highest ? std::numeric_limits<T>::max() : std::numeric_limits<T>::lowest();
  } else {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    return from_float<T>(is_highest ? kInfinity : -kInfinity);
  }
}

}  // namespace

void fill_identity(const BufferView& target, ReduceOp op) {
  if (target.count == 0) return;
  const Identity which = traits_of(op).identity;
  if (which == Identity::kZero || which == Identity::kAllBits) {
    std::memset(target.data, which == Identity::kZero ? 0 : 0xFF, target.bytes());
    return;
  }
  visit_dtype(target.dtype, [&]<typename T>(std::type_identity<T>) {
    std::fill_n(static_cast<T*>(target.data), target.count, identity<T>(which));
  });
}

void sum_rows(const RowGroups& groups, const std::byte* rows, std::size_t width, DType dtype,
              double scale, std::byte* sums) {
  const auto sum_up = [&](std::span<const void* const> same, std::size_t count) {
    if (same.size() == 1 && scale == 1.0) return convert(dtype, sums, dtype, same[0], count, 1.0);
    reduce(dtype, ReduceOp::kSum, sums, same, count, scale);
  };
  std::vector<const void*> same = {rows};
  if (groups.positions.empty()) return sum_up(same, groups.count * width);
  const std::size_t row_bytes = width * size_of(dtype);
  std::size_t begin = 0;
  for (const std::size_t end : groups.ends) {
    same.clear();
    for (; begin < end; ++begin) same.push_back(rows + groups.positions[begin] * row_bytes);
    sum_up(same, width);
    sums += row_bytes;
  }
}

void spread_rows(std::span<const std::int64_t> indices, const std::byte* rows,
                 std::size_t row_bytes, std::byte* table) {
  if (row_bytes == 0) return;  // rows without columns may have a null address
  for (const std::int64_t index : indices) {
    std::memcpy(table + static_cast<std::size_t>(index) * row_bytes, rows, row_bytes);
    rows += row_bytes;
  }
}

std::size_t to_wire(DType wire, void* dst, DType src_dtype, const void* src, std::size_t count,
                    int exponent) {
  if (const auto done = simd::to_wire(wire, dst, src_dtype, src, count, exponent)) return *done;
  return reference::to_wire(wire, dst, src_dtype, src, count, exponent);
}

std::uint16_t from_wire(DType dst_dtype, void* dst, DType wire, const void* src, std::size_t count,
                        int exponent, Stores stores) {
  if (const auto done = simd::from_wire(dst_dtype, dst, wire, src, count, exponent, stores)) {
    return *done;
  }
  convert(dst_dtype, dst, wire, src, count, std::ldexp(1.0, -exponent), stores);
  return reference::largest_magnitude(src, count);
}

}  // namespace kolo
