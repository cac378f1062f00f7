#include "comm/collective/reduce_kernels.h"

#include "comm/base/check.h"
#include "comm/collective/reference_kernels.h"
#include "comm/collective/simd_kernels.h"

namespace kolo {

void reduce(DType dtype, ReduceOp op, void* dst, std::span<const void* const> sources,
            std::size_t count, double scale) {
  check(!sources.empty(), "a reduction needs at least one source");
  if (simd::reduce(dtype, op, dst, sources, count, scale)) return;
  reference::reduce(dtype, op, dst, sources, count, scale);
}

void convert(DType dst_dtype, void* dst, DType src_dtype, const void* src, std::size_t count,
             double scale) {
  if (simd::convert(dst_dtype, dst, src_dtype, src, count, scale)) return;
  reference::convert(dst_dtype, dst, src_dtype, src, count, scale);
}

const char* kernel_target() { return simd::target(); }

}  // namespace kolo
