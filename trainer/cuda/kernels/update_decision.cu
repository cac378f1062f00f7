#include "trainer/cuda/compute/status.h"
#include "trainer/cuda/kernels/element.cuh"
#include "trainer/cuda/kernels/reduce.cuh"
#include "trainer/cuda/kernels/update.h"

namespace kolo::trainer::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPack = 4;

__global__ void sum_squares_kernel(const UpdateChunk* chunks, double* partials) {
  __shared__ double scratch[kThreads / kWarpSize];
  const UpdateChunk chunk = chunks[blockIdx.x];
  const std::size_t whole = chunk.count / kPack * kPack;
  float sum = 0.0f;
  for (std::size_t i = threadIdx.x * kPack; i < whole; i += kThreads * kPack) {
    float g[kPack];
    load(chunk.gradient + i, g);
#pragma unroll
    for (int k = 0; k < kPack; ++k) sum = fmaf(g[k], g[k], sum);
  }
  if (whole + threadIdx.x < chunk.count) {
    const float g = chunk.gradient[whole + threadIdx.x];
    sum = fmaf(g, g, sum);
  }
  const double total = block_sum<kThreads>(static_cast<double>(sum), scratch);
  if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

__global__ void decide_kernel(const double* partials, std::size_t count, DecisionRule rule,
                              const std::uint32_t* non_finite, UpdateDecision* decision) {
  __shared__ double scratch[kThreads / kWarpSize];
  double sum = 0.0;
  for (std::size_t i = threadIdx.x; i < count; i += kThreads) sum += partials[i];
  sum = block_sum<kThreads>(sum, scratch);
  if (threadIdx.x != 0) return;
  *decision = decide(*decision, rule, sum, non_finite != nullptr && *non_finite != 0);
}

}  // namespace

void decide_update(NativeStream stream, const UpdateArrays& a, const DecisionRule& rule,
                   const std::uint32_t* non_finite, double* partials, UpdateDecision* decision) {
  sum_squares_kernel<<<static_cast<unsigned>(a.chunk_count), kThreads, 0, native(stream)>>>(
      a.chunks, partials);
  check_launch("sum_squares");
  decide_kernel<<<1, kThreads, 0, native(stream)>>>(partials, a.chunk_count, rule, non_finite,
                                                    decision);
  check_launch("decide");
}

}  // namespace kolo::trainer::cuda
