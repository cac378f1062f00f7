// Measures Kolo's GPU kernels relative to the memory bandwidth, each compared with another library
// on the same data. The upper bound is a copy inside the device, measured in the same run.

#include <algorithm>
#include <array>
#include <numeric>
#include <random>

#include "benchmarks/gpu/gpu_bench.h"
#include "comm/device/kernels/top_k.h"
#include "comm/kernels/reduce_kernels.h"
#include "compression/kernels/top_k_selector.h"

namespace kolo::bench {
namespace {

/// Measures the addition of a received shard to this rank's shard.
std::vector<KernelTime> measure_reductions(GpuBench& bench) {
  std::vector<KernelTime> results;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    const std::size_t count = bench.bytes() / size_of(dtype);
    std::array<std::vector<std::byte>, 2> inputs;
    std::array<DeviceMemory, 2> on_device;
    for (std::size_t s = 0; s < 2; ++s) {
      const std::vector<float> values = random_floats(count, s + 1);
      inputs[s].resize(count * size_of(dtype));
      convert(dtype, inputs[s].data(), DType::kFloat32, values.data(), count, 1.0);
      on_device[s] = bench.upload(inputs[s]);
    }
    const std::array<const void*, 2> sources = {on_device[0].data(), on_device[1].data()};
    const auto add = [&](double scale) {
      bench.device().kernels().reduce(bench.stream(), dtype, ReduceOp::kSum, on_device[0].data(),
                                      sources, count, scale);
    };
    KernelTime result{.kernel = "add received shard, " + std::string(to_string(dtype)),
                      .bytes = 3 * count * size_of(dtype)};
    add(1.0);
    const std::array<const void*, 2> host_sources = {inputs[0].data(), inputs[1].data()};
    kolo::reduce(dtype, ReduceOp::kSum, inputs[0].data(), host_sources, count, 1.0);
    result.wrong = count_wrong(bench.download(on_device[0], inputs[0].size()), inputs[0]);
    result.us = bench.median_us([&] { add(0.5); });  // The scale of 0.5 keeps the sum in range.
    results.push_back(result);
  }
  return results;
}

/// Measures sums of the rows of an embedding's gradient, with two rows for each index.
std::vector<KernelTime> measure_row_sums(GpuBench& bench) {
  constexpr std::size_t kRows = 65536, kWidth = 768;
  const std::vector<float> rows = random_floats(kRows * kWidth, 1);
  std::vector<std::byte> sums(kRows / 2 * kWidth * sizeof(float));
  std::vector<std::size_t> positions(kRows), ends(kRows / 2);
  std::iota(positions.begin(), positions.end(), std::size_t{0});
  std::ranges::shuffle(positions, std::mt19937_64(2));
  for (std::size_t i = 0; i < ends.size(); ++i) ends[i] = 2 * (i + 1);

  const auto row_bytes = std::as_bytes(std::span(rows));
  const DeviceMemory device_rows = bench.upload(row_bytes);
  const DeviceMemory device_sums = bench.upload(sums);
  const DeviceMemory device_positions = bench.upload(std::as_bytes(std::span(positions)));
  const DeviceMemory device_ends = bench.upload(std::as_bytes(std::span(ends)));
  const RowGroups groups{
      .count = ends.size(),
      .positions = {reinterpret_cast<const std::size_t*>(device_positions.data()), kRows},
      .ends = {reinterpret_cast<const std::size_t*>(device_ends.data()), ends.size()}};
  KernelTime result{.kernel = "sum 65,536 rows of 768 in pairs, float32",
                    .bytes = row_bytes.size() + sums.size()};
  result.us = bench.median_us([&] {
    bench.device().kernels().sum_rows(bench.stream(), groups, device_rows.data(), kWidth,
                                      DType::kFloat32, 0.5, device_sums.data());
  });
  sum_rows({.count = ends.size(), .positions = positions, .ends = ends}, row_bytes.data(), kWidth,
           DType::kFloat32, 0.5, sums.data());
  result.wrong = count_wrong(bench.download(device_sums, sums.size()), sums);
  return {result};
}

std::uint32_t* words(const DeviceMemory& memory) {
  return reinterpret_cast<std::uint32_t*>(memory.data());
}

float* floats(const DeviceMemory& memory) { return reinterpret_cast<float*>(memory.data()); }

/// Measures top-k of one percent with its residual, compared with sorting all elements.
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
  const DeviceMemory device_sums = bench.device().allocate(count * 4, MemoryKind::kDevice);
  const DeviceMemory found = bench.device().allocate(k * 4 + 4, MemoryKind::kDevice);
  const DeviceMemory values = bench.device().allocate(k * 4 + 4, MemoryKind::kDevice);
  const DeviceMemory workspace =
      bench.device().allocate(top_k_workspace_bytes(count), MemoryKind::kDevice);
  const auto run = [&] {
    launch_top_k({.residual = floats(device_residual),
                  .gradient = floats(device_gradient),
                  .sums = floats(device_sums),
                  .count = count,
                  .k = k,
                  .indices = words(found),
                  .values = floats(values)},
                 {workspace.data(), workspace.bytes()}, bench.native());
  };
  run();
  std::vector<std::uint32_t> expected(k);
  std::vector<float> expected_values(k);
  SelectionHint hint;
  TopKSelector().select({.residual = residual.data(),
                         .gradient = gradient.data(),
                         .sums = residual.data(),
                         .count = count,
                         .k = k,
                         .indices = expected.data(),
                         .values = expected_values.data()},
                        hint);
  KernelTime result{.kernel = "top-k, 1 % of " + std::to_string(count),
                    .bytes = 16 * count + 8 * k};
  result.wrong =
      count_wrong(bench.download(found, k * 4), std::as_bytes(std::span(expected))) +
      count_wrong(bench.download(values, k * 4), std::as_bytes(std::span(expected_values))) +
      count_wrong(bench.download(device_sums, count * 4), std::as_bytes(std::span(residual)));
  result.us = bench.median_us(run);

  const DeviceMemory device_keys = bench.upload(std::as_bytes(std::span(keys)));
  const DeviceMemory device_indices = bench.upload(std::as_bytes(std::span(indices)));
  const CubCall sort =
      cub_sort_pairs(bench.device(), words(device_keys), words(device_indices), count);
  result.peers.push_back({"cub::DeviceRadixSort::SortPairsDescending",
                          bench.median_us([&] { sort(bench.native()); })});
  return {result};
}

}  // namespace
}  // namespace kolo::bench

int main(int argc, char** argv) {
  using namespace kolo::bench;
  return gpu_bench_main(argc, argv, "Speed of GPU kernels beside a copy inside the device",
                        {{"copies", measure_batched_copies},
                         {"reductions", measure_reductions},
                         {"rows", measure_row_sums},
                         {"top-k", measure_top_k}});
}
