#pragma once

#include <string_view>
#include <thread>

#include "comm/device/stream.h"

namespace kolo::trainer::cuda {

/// Throws KoloError(kInternal) with CUDA's text unless the launch of `kernel` was accepted. Does
/// not wait for it.
void check_launch(std::string_view kernel);

/// Returns once everything before the last record of `event` is complete, and yields the processor
/// meanwhile. Errors: those of the device.
inline void wait_for(const Event& event) {
  while (!event.done()) std::this_thread::yield();
}

}  // namespace kolo::trainer::cuda
