#pragma once

#include <cstddef>
#include <span>

#include "compression/kernels/top_k.h"

namespace kolo {

/// Bytes of workspace for one top-k of `count` elements: about a quarter of the residual.
std::size_t top_k_workspace_bytes(std::size_t count);

/// Enqueues `top_k` on a cudaStream_t of the current device. Bits: those of `top_k`, in every run.
///
/// Shape:   all pointers are device memory; residual, gradient and workspace are aligned to 16
///          bytes. The contents of the workspace do not matter; nothing else may use it until the
///          work is complete.
/// Threads: as for Stream. Errors: those of `top_k`; UsageError for memory that is not aligned or a
///          workspace that is too small; KoloError(kInternal) if a launch is refused.
/// Cost:    12 bytes per element to add and count the first digit, 4 to collect the survivors, then
///          passes over those only. Six launches.
/// Source:  radix select as in Alabi et al., ACM JEA 17, 2012, with ordered compaction.
void launch_top_k(const TopK& task, std::span<std::byte> workspace, void* cuda_stream);

}  // namespace kolo
