#pragma once

#include "topology/gpu_discovery.h"

namespace kolo {

/// `discover_gpus` in a build with CUDA.
GpuInventory discover_cuda_gpus();

}  // namespace kolo
