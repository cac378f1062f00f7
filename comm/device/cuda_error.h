#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <string_view>

namespace kolo {

/// Throws KoloError unless `status` is cudaSuccess: kResources if memory ran out, otherwise
/// kInternal. The text names the current device, `call` and CUDA's reason. Clears CUDA's last
/// error, which the next CUDA call in this thread would otherwise report.
void require_cuda(cudaError_t status, std::string_view call);
void require_cuda(cudaError_t status, const char* call);

/// Logs an error unless `status` is cudaSuccess, for code that must not throw, such as destructors.
/// Logs nothing after CUDA has been unloaded at the end of the process.
void log_cuda(cudaError_t status, std::string_view call) noexcept;

}  // namespace kolo
