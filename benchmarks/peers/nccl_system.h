#pragma once

#include <memory>

#include "benchmarks/all_reduce/all_reduce_system.h"
#include "comm/device/device.h"
#include "runtime/api/kolo.h"

namespace kolo::bench {

/// NCCL's all-reduce in device memory on all ranks, as its users call it: a communicator of its own
/// on `device`, which outlives the system. Collective.
/// Errors: those of `require_nccl`; prepare throws UsageError for host memory.
std::unique_ptr<AllReduceSystem> make_nccl_system(Runtime& runtime, Device& device);

}  // namespace kolo::bench
