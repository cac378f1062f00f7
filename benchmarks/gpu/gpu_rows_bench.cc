// The rows of an embedding's gradient, two for each index.

#include <algorithm>
#include <numeric>
#include <random>

#include "benchmarks/gpu/gpu_bench.h"
#include "comm/kernels/row_kernels.h"

namespace kolo::bench {

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

}  // namespace kolo::bench
