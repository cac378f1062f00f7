#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "benchmarks/gpu/gpu_bench.h"

namespace kolo::bench {

/// One question: kernels on data of its own.
struct Measurement {
  std::string name;
  std::function<std::vector<KernelTime>(GpuBench&)> measure;
};

/// The main function of a benchmark of GPU kernels: options, a copy inside the device as the
/// ceiling of the run, the measurements, a table and JSON rows {kernel, bytes, us, share_of_copy,
/// floor_us, wrong, peer, peer_us}, null where unknown. Returns the exit status: 77 without a CUDA
/// device, 1 for wrong results.
int gpu_bench_main(int argc, char** argv, const std::string& description,
                   std::span<const Measurement> measurements);

}  // namespace kolo::bench
