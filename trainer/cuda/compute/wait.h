#pragma once

#include <thread>

#include "comm/device/stream.h"

namespace kolo::trainer::cuda {

/// Returns once everything before the last record of `event` is complete, and yields the processor
/// meanwhile. Errors: those of the device.
inline void wait_for(const Event& event) {
  while (!event.done()) std::this_thread::yield();
}

}  // namespace kolo::trainer::cuda
