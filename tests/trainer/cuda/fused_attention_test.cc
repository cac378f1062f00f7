// Asks cuDNN, without a GPU, whether it has kernels for the graphs of attention on GPUs of several
// kinds. cuDNN decides so from the properties of a device. It wants CUDA's driver library, of which
// the toolkit has an empty one.

#include <cudnn.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>

#include <fmt/format.h>

#include "trainer/cuda/layers/attention.h"

namespace kolo::trainer::cuda {
namespace {

#if CUDNN_VERSION >= 91600

// The properties of an H100, but for its compute capability, as cuDNN writes them.
GraphDescriptor device_of(int compute_capability) {
  const std::string properties = fmt::format(
      R"({{"cudaDeviceId":0,"deviceVer":{},"driverVer":13000,"totalGlobalMem":80000000000,)"
      R"("maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,)"
      R"("multiProcessorCount":132,"warpSize":32,"maxSharedMemoryPerBlock":49152,)"
      R"("maxSharedMemoryPerBlockOptin":232448,"reservedSharedMemoryPerBlock":1024,)"
      R"("maxRegistersPerSM":65536,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,)"
      R"("maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,)"
      R"("smClockRateKHz":1980000,"memClockRateKHz":2619000,"l2CacheSize":52428800,)"
      R"("deviceName":"NVIDIA H100"}})",
      compute_capability * 10);
  GraphDescriptor device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  device.set_all(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, properties);
  device.finish();
  return device;
}

std::size_t engines_for(const DnnGraph& graph, int compute_capability) {
  const GraphDescriptor device = device_of(compute_capability);
  return deterministic_engines(graph.describe(nullptr), &device).size();
}

HeadShape heads(std::size_t length, std::size_t head_width) {
  return {.parts = 3, .sequences = 8, .length = length, .heads = 12, .head_width = head_width};
}

TEST(FusedAttentionTest, CudnnHasDeterministicKernels) {
  if (dlopen(KOLO_CUDA_DRIVER_STUB, RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    GTEST_SKIP() << "no driver library of CUDA: " << dlerror();
  }
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    for (const std::size_t length : {1024u, 100u}) {
      const FusedAttention attention(dtype, heads(length, 64));
      for (const int compute_capability : {80, 90, 100}) {
        SCOPED_TRACE(fmt::format("{}, length {}, compute capability {}", to_string(dtype), length,
                                 compute_capability));
        EXPECT_GT(engines_for(attention.forward_graph(), compute_capability), 0u);
        EXPECT_GT(engines_for(attention.backward_graph(), compute_capability), 0u);
      }
    }
  }
  // So that the test does not pass because cuDNN accepts everything.
  const FusedAttention narrow_heads(DType::kBFloat16, heads(1024, 60));
  EXPECT_EQ(engines_for(narrow_heads.forward_graph(), 90), 0u);
  const FusedAttention in_float32(DType::kFloat32, heads(1024, 64));
  EXPECT_EQ(engines_for(in_float32.backward_graph(), 90), 0u);
}

#else

TEST(FusedAttentionTest, CudnnHasDeterministicKernels) {
  GTEST_SKIP() << "cuDNN before 9.16 is not used for attention";
}

#endif

}  // namespace
}  // namespace kolo::trainer::cuda
