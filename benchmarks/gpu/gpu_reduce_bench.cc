// Adding a received shard to the own one.

#include <array>

#include "benchmarks/gpu/gpu_bench.h"
#include "comm/kernels/reduce_kernels.h"

namespace kolo::bench {

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
    result.us = bench.median_us([&] { add(0.5); });  // The halved sum stays in range.
    results.push_back(result);
  }
  return results;
}

}  // namespace kolo::bench
