#pragma once

#include <memory>
#include <string>

#include "comm/device/device.h"

namespace kolo {

/// Opens the device called `name`: "cuda:INDEX", or "cuda" for device `local_rank` modulo the
/// number of devices. Errors: KoloError(kConfig) for any other name, a build without CUDA, or a
/// device that does not exist.
std::unique_ptr<Device> open_device(const std::string& name, int local_rank);

/// Describes the CUDA support of this build and machine: "CUDA 13.0, 8 devices", "CUDA 13.0, no
/// device: the driver ...", "not built with CUDA". Opens no device. Errors: none.
std::string cuda_availability();

/// Returns whether this build can open CUDA devices.
bool is_built_with_cuda();

}  // namespace kolo
