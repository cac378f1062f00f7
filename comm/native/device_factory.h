#pragma once

#include <memory>
#include <string>

#include "comm/device/device.h"

namespace kolo {

/// Opens the accelerator that a user named: "cuda:INDEX", or "cuda" for the one that falls to this
/// rank, number `local_rank` modulo their count.
/// Errors: KoloError(kConfig) if the name is none of these, the build has no CUDA, or the machine
///         no such device; the text says what to do.
std::unique_ptr<Device> open_device(const std::string& name, int local_rank);

/// What this build and machine have, for reports: "CUDA 13.0, 8 devices", "CUDA 13.0, no device:
/// the driver ...", "not built with CUDA". Opens no device. Errors: none.
std::string cuda_availability();

}  // namespace kolo
