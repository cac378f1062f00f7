#pragma once

#include "topology/gpu_discovery.h"

namespace kolo {

/// What `discover_gpus` is in a build with CUDA.
GpuInventory discover_cuda_gpus();

}  // namespace kolo
