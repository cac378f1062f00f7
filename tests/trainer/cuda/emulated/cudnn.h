#pragma once

// cuDNN's header with the emulator's in place of CUDA's. The latter comes first, because it has
// templates, and lacks one type.
#include <cuda_runtime_api.h>

using cudaGraph_t = struct CUgraph_st*;

#include_next <cudnn.h>
