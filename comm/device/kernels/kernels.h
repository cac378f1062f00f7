#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/base/reduction.h"
#include "comm/device/device_kernels.h"
#include "comm/kernels/reduce_kernels.h"

namespace kolo {

/// Enqueues `copy` on a cudaStream_t of the current device, as one launch. Blocks take chunks
/// round-robin; threads move 16 bytes at a time where addresses allow. Bits: those of
/// `copy_batched_on_host`.
///
/// Threads: as for Stream. Errors: KoloError(kInternal) with CUDA's text if the launch is refused.
/// Cost:    one read and one write per element, 24 bytes per chunk.
void launch_batched_copy(const BatchedCopy& copy, void* cuda_stream);

/// `DeviceKernels::copy_batched`, chunk by chunk, in memory that the processor can access. It
/// defines the bits of the other implementations, and a host device uses it.
///
/// Threads: pure; any. Errors: none.
void copy_batched_on_host(const BatchedCopy& copy);

/// Enqueues `DeviceKernels::reduce` on a cudaStream_t of the current device, as one launch with the
/// addresses of the sources as arguments. Bits: those of `reduce` in comm/kernels/reduce_kernels.h.
///
/// Threads: as for Stream. Errors: UsageError unless there are 1 to kMostReduceSources sources;
///          KoloError(kInternal) with CUDA's text if the launch is refused.
/// Cost:    every source is read once, the target is written once.
void launch_reduce(DType dtype, ReduceOp op, void* target, std::span<const void* const> sources,
                   std::size_t count, double scale, void* cuda_stream);

/// Enqueues `DeviceKernels::sum_rows` on a cudaStream_t of the current device, as one launch.
/// Threads take words of the sums round-robin; a word has 16 bytes, or fewer if addresses and width
/// require it. Bits: as `sum_rows` in comm/kernels/reduce_kernels.h.
///
/// Threads: as for Stream. Errors: KoloError(kInternal) with CUDA's text if the launch is refused.
/// Cost:    every row is read once, every sum is written once. Every thread reads the positions of
///          its group.
void launch_row_sums(const RowGroups& groups, const void* rows, std::size_t width, DType dtype,
                     double scale, void* sums, void* cuda_stream);

/// Enqueues `DeviceKernels::spread_rows` likewise: clears the table, then writes the rows in one
/// launch.
///
/// Cost:    every row is read once; table rows are written once, those with an index twice.
void launch_row_spread(std::span<const std::int64_t> indices, const void* rows,
                       std::size_t row_bytes, void* table, std::size_t height, void* cuda_stream);

}  // namespace kolo
