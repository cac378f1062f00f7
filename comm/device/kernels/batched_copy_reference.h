#pragma once

#include "comm/device/device_kernels.h"

namespace kolo {

/// `DeviceKernels::copy_batched`, chunk by chunk, in memory that the processor can access: the
/// definition of its bits, and the implementation of a host device.
///
/// Threads: pure; any. Errors: none.
void copy_batched_on_host(const BatchedCopy& copy);

}  // namespace kolo
