#pragma once

#include "comm/device/device_kernels.h"

namespace kolo {

/// The kernels of host streams: each call enqueues the CPU reference as one operation. Stateless.
/// Threads: any.
class HostKernels final : public DeviceKernels {
 public:
  void copy_batched(Stream& stream, const BatchedCopy& copy) override;
  void reduce(Stream& stream, DType dtype, ReduceOp op, void* target,
              std::span<const void* const> sources, std::size_t count, double scale) override;
};

}  // namespace kolo
