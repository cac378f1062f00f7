// The kernels of a GPU relative to its memory bandwidth, each beside a peer on the same data. The
// ceiling is a copy inside the device, measured in the same run.

#include <array>

#include "benchmarks/gpu/gpu_bench_main.h"

int main(int argc, char** argv) {
  using namespace kolo::bench;
  const std::array<Measurement, 4> measurements = {Measurement{"copies", measure_batched_copies},
                                                   {"reductions", measure_reductions},
                                                   {"rows", measure_row_sums},
                                                   {"top-k", measure_top_k}};
  return gpu_bench_main(argc, argv, "Speed of GPU kernels beside a copy inside the device",
                        measurements);
}
