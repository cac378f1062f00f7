// Top-k of one percent with its residual, beside sorting everything.

#include <numeric>

#include "benchmarks/gpu/gpu_bench.h"
#include "benchmarks/gpu/gpu_peers.h"
#include "compression/kernels/radix_select.h"
#include "compression/kernels/top_k_cuda.h"

namespace kolo::bench {
namespace {

std::uint32_t* words(const DeviceMemory& memory) {
  return reinterpret_cast<std::uint32_t*>(memory.data());
}

float* floats(const DeviceMemory& memory) { return reinterpret_cast<float*>(memory.data()); }

}  // namespace

std::vector<KernelTime> measure_top_k(GpuBench& bench) {
  const std::size_t count = bench.bytes() / sizeof(float);
  const std::size_t k = count / 100;
  std::vector<float> residual = random_floats(count, 1);
  const std::vector<float> gradient = random_floats(count, 2);
  std::vector<std::uint32_t> keys(count), indices(count);
  for (std::size_t i = 0; i < count; ++i) {
    keys[i] = radix::key_of(radix::accumulate(residual[i], gradient[i]));
  }
  std::iota(indices.begin(), indices.end(), 0u);

  const DeviceMemory device_residual = bench.upload(std::as_bytes(std::span(residual)));
  const DeviceMemory device_gradient = bench.upload(std::as_bytes(std::span(gradient)));
  const DeviceMemory found = bench.device().allocate(k * 4 + 4, MemoryKind::kDevice);
  const DeviceMemory values = bench.device().allocate(k * 4 + 4, MemoryKind::kDevice);
  const DeviceMemory workspace =
      bench.device().allocate(top_k_workspace_bytes(count), MemoryKind::kDevice);
  const auto run = [&] {
    launch_top_k({.residual = floats(device_residual),
                  .gradient = floats(device_gradient),
                  .count = count,
                  .k = k,
                  .indices = words(found),
                  .values = floats(values)},
                 {workspace.data(), workspace.bytes()}, bench.native());
  };
  run();
  std::vector<std::uint32_t> expected(k);
  std::vector<float> expected_values(k);
  top_k({.residual = residual.data(),
         .gradient = gradient.data(),
         .count = count,
         .k = k,
         .indices = expected.data(),
         .values = expected_values.data()});
  KernelTime result{.kernel = "top-k, 1 % of " + std::to_string(count),
                    .bytes = 16 * count + 8 * k};
  result.wrong =
      count_wrong(bench.download(found, k * 4), std::as_bytes(std::span(expected))) +
      count_wrong(bench.download(values, k * 4), std::as_bytes(std::span(expected_values))) +
      count_wrong(bench.download(device_residual, count * 4), std::as_bytes(std::span(residual)));
  result.us = bench.median_us(run);  // The residual lives on from one to the next, as in training.

  const DeviceMemory device_keys = bench.upload(std::as_bytes(std::span(keys)));
  const DeviceMemory device_indices = bench.upload(std::as_bytes(std::span(indices)));
  CubSortPairs sort(bench.device(), words(device_keys), words(device_indices), count);
  result.peers.push_back({"cub::DeviceRadixSort::SortPairsDescending",
                          bench.median_us([&] { sort.run(bench.native()); })});
  return {result};
}

}  // namespace kolo::bench
