#pragma once

#include "comm/device/device_kernels.h"

namespace kolo {

/// What `DeviceKernels::copy_batched` does, chunk after chunk, on memory that the processor
/// reaches: the definition of its bits, and the body of a host device.
///
/// Threads: pure; any. Errors: none.
void copy_batched_on_host(const BatchedCopy& copy);

}  // namespace kolo
