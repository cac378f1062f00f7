#pragma once

#include <memory>
#include <string>

#include "comm/device/device.h"

namespace kolo {

/// Opens the accelerator that a user named: "cuda:INDEX", or "cuda" for device number `local_rank`
/// modulo the count of devices. Errors: KoloError(kConfig) for any other name, a build without
/// CUDA, or a device that the machine lacks; the text says what to do.
std::unique_ptr<Device> open_device(const std::string& name, int local_rank);

/// Describes CUDA in this build and on this machine, for reports: "CUDA 13.0, 8 devices", "CUDA
/// 13.0, no device: the driver ...", "not built with CUDA". Opens no device. Errors: none.
std::string cuda_availability();

}  // namespace kolo
