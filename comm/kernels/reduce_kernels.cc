#include "comm/kernels/reduce_kernels.h"

#include "comm/base/check.h"
#include "comm/kernels/block_copy.h"
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

}  // namespace kolo
