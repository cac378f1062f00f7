#include "comm/device/cuda_kernels.h"

#include "comm/device/cuda_device_guard.h"
#include "comm/device/cuda_stream.h"
#include "comm/device/kernels/batched_copy.h"
#include "comm/device/kernels/reduce.h"
#include "comm/device/kernels/rows.h"

namespace kolo {

void CudaKernels::copy_batched(Stream& stream, const BatchedCopy& copy) {
  const CudaStream& on = as_cuda(stream);
  const CudaDeviceGuard guard(on.device());
  launch_batched_copy(copy, on.native());
}

void CudaKernels::reduce(Stream& stream, DType dtype, ReduceOp op, void* target,
                         std::span<const void* const> sources, std::size_t count, double scale) {
  check_reduce(sources.size());
  const CudaStream& on = as_cuda(stream);
  const CudaDeviceGuard guard(on.device());
  launch_reduce(dtype, op, target, sources, count, scale, on.native());
}

void CudaKernels::sum_rows(Stream& stream, const RowGroups& groups, const void* rows,
                           std::size_t width, DType dtype, double scale, void* sums) {
  const CudaStream& on = as_cuda(stream);
  const CudaDeviceGuard guard(on.device());
  launch_row_sums(groups, rows, width, dtype, scale, sums, on.native());
}

void CudaKernels::spread_rows(Stream& stream, std::span<const std::int64_t> indices,
                              const void* rows, std::size_t row_bytes, void* table,
                              std::size_t height) {
  const CudaStream& on = as_cuda(stream);
  const CudaDeviceGuard guard(on.device());
  launch_row_spread(indices, rows, row_bytes, table, height, on.native());
}

}  // namespace kolo
