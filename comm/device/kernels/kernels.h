#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/base/reduction.h"
#include "comm/base/span.h"
#include "comm/device/device_kernels.h"
#include "comm/kernels/reduce_kernels.h"

namespace kolo {

// Python's package compiles kernels with another C++ library than the code that calls them, so no
// type of the C++ library crosses this interface.

/// Loads all kernels of this folder on the current device. CUDA otherwise loads a kernel at its
/// first launch, and may wait for all work of the device: that never ends if a collective waits for
/// a peer that waits for this rank. Errors: KoloError(kInternal) with CUDA's text.
void load_kernels();
void load_batched_copy();
void load_reduce();
void load_rows();
void load_top_k();
void load_pairs();
void load_codes();

/// Enqueues `copy` on a cudaStream_t of the current device, as one launch. Blocks take chunks
/// round-robin; threads move 16 bytes at a time where addresses allow. The bits equal those of
/// `copy_batched_on_host`.
///
/// Threads: those of Stream. Errors: KoloError(kInternal) with CUDA's text if the launch is
/// refused.
/// Cost:    one read and one write per element, 24 bytes per chunk.
void launch_batched_copy(const BatchedCopy& copy, void* cuda_stream);

/// Runs `copy` on the processor, in memory that the processor can access. This function defines the
/// bits of all implementations of `DeviceKernels::copy_batched`; a host device uses it.
///
/// Threads: pure; any. Errors: none.
void copy_batched_on_host(const BatchedCopy& copy);

/// Enqueues `DeviceKernels::reduce` on a cudaStream_t of the current device, as one launch with the
/// source addresses as kernel arguments. The bits equal those of `kolo::reduce`.
///
/// Threads: those of Stream. Errors: UsageError unless there are 1 to kMostReduceSources sources;
///          KoloError(kInternal) with CUDA's text if the launch is refused.
/// Cost:    every source is read once, the target is written once.
void launch_reduce(DType dtype, ReduceOp op, void* target, Span<const void* const> sources,
                   std::size_t count, double scale, void* cuda_stream);

/// Enqueues `DeviceKernels::sum_rows` on a cudaStream_t of the current device, as one launch. Each
/// thread computes units of 16 bytes of the sums, or fewer bytes if addresses and width require it.
/// The bits equal those of `kolo::sum_rows`.
///
/// Threads: those of Stream. Errors: KoloError(kInternal) with CUDA's text if the launch is
/// refused.
/// Cost:    every row is read once, every sum is written once.
void launch_row_sums(const RowGroups& groups, const void* rows, std::size_t width, DType dtype,
                     double scale, void* sums, void* cuda_stream);

/// Enqueue `DeviceKernels::subtract_pairs`, `quantise` and `find_non_finite` on a cudaStream_t of
/// the current device, as one launch each.
void launch_subtract_pairs(Span<const std::int64_t> indices, const float* values, float* residual,
                           float* velocity, void* cuda_stream);
void launch_quantise(const Quantisation& task, void* cuda_stream);
void launch_find_non_finite(DType dtype, const void* data, std::size_t count,
                            std::uint32_t* non_finite, void* cuda_stream);

/// Run the same on the processor; these functions define the results.
void subtract_pairs_on_host(std::span<const std::int64_t> indices, const float* values,
                            float* residual, float* velocity);
void quantise_on_host(const Quantisation& task);
void find_non_finite_on_host(DType dtype, const void* data, std::size_t count,
                             std::uint32_t* non_finite);

/// Enqueues `DeviceKernels::spread_rows` on a cudaStream_t of the current device: clears the table,
/// then writes the rows in one launch.
///
/// Cost:    every row is read once; every table row is cleared, and copied rows are written again.
void launch_row_spread(Span<const std::int64_t> indices, const void* rows, std::size_t row_bytes,
                       void* table, std::size_t height, void* cuda_stream);

}  // namespace kolo
