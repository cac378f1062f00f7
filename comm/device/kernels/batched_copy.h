#pragma once

#include "comm/device/device_kernels.h"

namespace kolo {

/// Enqueues `copy` on a cudaStream_t of the current device, as one launch. Blocks take chunks
/// round-robin; threads move 16 bytes at a time where addresses allow. Bits: those of
/// `copy_batched_on_host`.
///
/// Threads: as for Stream. Errors: KoloError(kInternal) with CUDA's text if the launch is refused.
/// Cost:    one read and one write per element, 24 bytes per chunk.
void launch_batched_copy(const BatchedCopy& copy, void* cuda_stream);

}  // namespace kolo
