#include "benchmarks/gpu/gpu_bench.h"

#include <algorithm>
#include <random>

#include "comm/device/cuda_error.h"

namespace kolo::bench {

GpuBench::TimedEvent GpuBench::make_timed_event() {
  cudaEvent_t event = nullptr;
  require_cuda(cudaEventCreate(&event), "cudaEventCreate");
  return TimedEvent(event);
}

GpuBench::GpuBench(CudaDevice& device, std::size_t bytes, int iterations)
    : device_(device), bytes_(bytes), iterations_(iterations), stream_(device.make_stream()) {}

double GpuBench::median_us(const std::function<void()>& enqueue, int iterations) {
  const auto stream = static_cast<cudaStream_t>(native());
  std::vector<TimedEvent> events;
  for (int i = 0; i <= iterations; ++i) events.push_back(make_timed_event());
  for (int i = 0; i < 3; ++i) enqueue();
  require_cuda(cudaEventRecord(events.front().get(), stream), "cudaEventRecord");
  for (std::size_t i = 1; i < events.size(); ++i) {
    enqueue();
    require_cuda(cudaEventRecord(events[i].get(), stream), "cudaEventRecord");
  }
  require_cuda(cudaEventSynchronize(events.back().get()), "cudaEventSynchronize");
  std::vector<float> times(static_cast<std::size_t>(iterations));
  for (std::size_t i = 0; i < times.size(); ++i) {
    require_cuda(cudaEventElapsedTime(&times[i], events[i].get(), events[i + 1].get()),
                 "cudaEventElapsedTime");
  }
  const auto middle = times.begin() + iterations / 2;
  std::nth_element(times.begin(), middle, times.end());
  return 1e3 * static_cast<double>(*middle);
}

DeviceMemory GpuBench::upload(std::span<const std::byte> bytes) {
  DeviceMemory memory = device_.allocate(bytes.size(), MemoryKind::kDevice);
  overwrite(memory, bytes);
  return memory;
}

void GpuBench::overwrite(const DeviceMemory& memory, std::span<const std::byte> bytes) {
  require_cuda(cudaStreamSynchronize(static_cast<cudaStream_t>(native())), "cudaStreamSynchronize");
  require_cuda(cudaMemcpy(memory.data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice),
               "cudaMemcpy");
}

std::vector<std::byte> GpuBench::download(const DeviceMemory& memory, std::size_t bytes) {
  std::vector<std::byte> result(bytes);
  require_cuda(cudaStreamSynchronize(static_cast<cudaStream_t>(native())), "cudaStreamSynchronize");
  require_cuda(cudaMemcpy(result.data(), memory.data(), bytes, cudaMemcpyDeviceToHost),
               "cudaMemcpy");
  return result;
}

std::vector<float> random_floats(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    // The sum of four uniform numbers in [-0.5, 0.5).
    const std::uint64_t bits = random();
    value = 0;
    for (int i = 0; i < 4; ++i) {
      value += static_cast<float>(bits >> (16 * i) & 0xffff) / 65536.0f - 0.5f;
    }
  }
  return values;
}

std::size_t count_wrong(std::span<const std::byte> actual, std::span<const std::byte> expected) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) wrong += actual[i] != expected[i];
  return wrong;
}

}  // namespace kolo::bench
