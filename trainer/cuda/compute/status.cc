#include "trainer/cuda/compute/status.h"

#include <cuda_runtime_api.h>

#include "comm/device/cuda_error.h"

namespace kolo::trainer::cuda {

void check_launch(std::string_view kernel) { require_cuda(cudaGetLastError(), kernel); }

}  // namespace kolo::trainer::cuda
