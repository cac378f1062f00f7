#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/base/dtype.h"
#include "comm/kernels/row_kernels.h"

namespace kolo {

/// Enqueues `DeviceKernels::sum_rows` on a cudaStream_t of the current device, as one launch.
/// Threads take words of the sums round-robin, of the 16 bytes or fewer that addresses and width
/// allow. Bits: those of `sum_rows` in comm/kernels/row_kernels.h.
///
/// Threads: as for Stream. Errors: KoloError(kInternal) with CUDA's text if the launch is refused.
/// Cost:    every row is read once, every sum is written once. Every thread reads the positions of
///          its group.
void launch_row_sums(const RowGroups& groups, const void* rows, std::size_t width, DType dtype,
                     double scale, void* sums, void* cuda_stream);

/// Enqueues `DeviceKernels::spread_rows` likewise: the table is cleared, and then written in one
/// launch.
///
/// Cost:    every row is read once, the table is written once and its rows with an index twice.
void launch_row_spread(std::span<const std::int64_t> indices, const void* rows,
                       std::size_t row_bytes, void* table, std::size_t height, void* cuda_stream);

}  // namespace kolo
