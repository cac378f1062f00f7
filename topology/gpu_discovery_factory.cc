#include "topology/gpu_discovery.h"

#if KOLO_CUDA
#include "topology/gpu_discovery_cuda.h"
#endif

namespace kolo {

#if KOLO_CUDA

GpuInventory discover_gpus() { return discover_cuda_gpus(); }

#else

GpuInventory discover_gpus() { return {.absence = "this build of Kolo has no CUDA"}; }

#endif

}  // namespace kolo
