#pragma once

#include "comm/device/device_kernels.h"

namespace kolo {

/// Enqueues `copy` on a cudaStream_t of the current device, as one launch: blocks take chunks in
/// turns, threads move 16 bytes at a time where the addresses allow. Bits: those of
/// `copy_batched_on_host`.
///
/// Threads: as Stream. Errors: KoloError(kInternal) with CUDA's text if the launch is refused.
/// Cost:    one read and one write per element, 24 bytes per chunk.
void launch_batched_copy(const BatchedCopy& copy, void* cuda_stream);

}  // namespace kolo
