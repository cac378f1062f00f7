#pragma once

#include "comm/device/device_kernels.h"

namespace kolo {

/// The kernels of CUDA streams; see comm/device/kernels/. Stateless. Threads: any.
class CudaKernels final : public DeviceKernels {
 public:
  void copy_batched(Stream& stream, const BatchedCopy& copy) override;
  void reduce(Stream& stream, DType dtype, ReduceOp op, void* target,
              std::span<const void* const> sources, std::size_t count, double scale) override;
  void sum_rows(Stream& stream, const RowGroups& groups, const void* rows, std::size_t width,
                DType dtype, double scale, void* sums) override;
  void spread_rows(Stream& stream, std::span<const std::int64_t> indices, const void* rows,
                   std::size_t row_bytes, void* table, std::size_t height) override;
};

}  // namespace kolo
