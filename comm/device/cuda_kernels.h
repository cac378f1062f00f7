#pragma once

#include "comm/device/device_kernels.h"

namespace kolo {

/// The kernels of CUDA streams; see comm/device/kernels/. Stateless. Threads: any.
class CudaKernels final : public DeviceKernels {
 public:
  void copy_batched(Stream& stream, const BatchedCopy& copy) override;
  void reduce(Stream& stream, DType dtype, ReduceOp op, void* target,
              std::span<const void* const> sources, std::size_t count, double scale) override;
};

}  // namespace kolo
