#pragma once

#include <string_view>
#include <thread>

#include "comm/device/stream.h"

namespace kolo::trainer::cuda {

/// Throws KoloError(kInternal) with CUDA's text if the launch of `kernel` failed. Never blocks.
void check_launch(std::string_view kernel);

/// Blocks until all work before the last record of `event` is complete, and yields the processor
/// meanwhile. Errors: those of the device.
inline void wait_for(const Event& event) {
  while (!event.done()) std::this_thread::yield();
}

}  // namespace kolo::trainer::cuda
