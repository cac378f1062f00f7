#pragma once

#include <cstddef>
#include <span>

#include "comm/base/dtype.h"

namespace kolo {

/// Enqueues `DeviceKernels::reduce` on a cudaStream_t of the current device, as one launch with the
/// addresses of the sources as arguments. Bits: those of `reduce` in comm/kernels/reduce_kernels.h.
///
/// Threads: as for Stream. Errors: UsageError unless there are 1 to kMostReduceSources sources;
///          KoloError(kInternal) with CUDA's text if the launch is refused.
/// Cost:    every source is read once, the target is written once.
void launch_reduce(DType dtype, ReduceOp op, void* target, std::span<const void* const> sources,
                   std::size_t count, double scale, void* cuda_stream);

}  // namespace kolo
