#include "tests/support/cuda_emulator/sample_kernels.h"

#include <cuda_runtime_api.h>

namespace kolo::emulator::sample {
namespace {

constexpr unsigned kAllLanes = 0xffffffffu;

template <bool kWaits>
__global__ void sum_kernel(const std::uint32_t* numbers, std::uint32_t* sums) {
  extern __shared__ std::uint32_t parts[];
  parts[threadIdx.x] = numbers[blockIdx.x * blockDim.x + threadIdx.x];
  if (kWaits) __syncthreads();
  if (threadIdx.x != 0) return;
  std::uint32_t sum = 0;
  for (unsigned i = 0; i < blockDim.x; ++i) sum += parts[i];
  sums[blockIdx.x] = sum;
}

__global__ void order_kernel(std::uint32_t* counter, std::uint32_t* order) {
  order[atomicAdd(counter, 1u)] = blockIdx.x;
}

__global__ void places_kernel(std::uint32_t* places) {
  const unsigned x = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned y = blockIdx.y * blockDim.y + threadIdx.y;
  const unsigned z = blockIdx.z * blockDim.z + threadIdx.z;
  places[(z * gridDim.y * blockDim.y + y) * gridDim.x * blockDim.x + x] += z * 100 + y * 10 + x;
}

__global__ void exchange_kernel(unsigned* ballots, double* across) {
  ballots[threadIdx.x] = __ballot_sync(kAllLanes, threadIdx.x % 2 == 1);
  across[threadIdx.x] = __shfl_xor_sync(kAllLanes, 0.5 + threadIdx.x, 16);
}

__global__ void unwritten_kernel(float* into) {
  __shared__ float value;
  *into = value;
}

__global__ void barrier_for_some_kernel() {
  if (threadIdx.x < 32) return;
  __syncthreads();
}

__global__ void two_places_kernel() {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

__global__ void missing_lane_kernel() {
  if (threadIdx.x != 7) __ballot_sync(kAllLanes, true);
}

__global__ void half_warp_kernel() { __ballot_sync(0xffffu, true); }

__global__ void behind_kernel() {
  __shared__ std::uint32_t values[32];
  values[threadIdx.x + 1] = 0;
}

__global__ void vector_kernel(const float* from, float* to) {
  *reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(from);
}

__global__ void count_kernel(std::uint32_t* counter) { atomicAdd(counter, 1u); }

}  // namespace

void sum_blocks(std::span<const std::uint32_t> numbers, unsigned threads, std::uint32_t* sums) {
  const auto blocks = static_cast<unsigned>(numbers.size() / threads);
  sum_kernel<true><<<blocks, threads, threads * sizeof(std::uint32_t)>>>(numbers.data(), sums);
}

void sum_blocks_without_barrier(std::span<const std::uint32_t> numbers, unsigned threads,
                                std::uint32_t* sums) {
  const auto blocks = static_cast<unsigned>(numbers.size() / threads);
  sum_kernel<false><<<blocks, threads, threads * sizeof(std::uint32_t)>>>(numbers.data(), sums);
}

void record_order(unsigned blocks, std::uint32_t* counter, std::uint32_t* order) {
  order_kernel<<<blocks, 1>>>(counter, order);
}

void record_places(std::uint32_t* places) {
  places_kernel<<<dim3(2, 3, 2), dim3(2, 2, 3)>>>(places);
}

void exchange_lanes(unsigned* ballots, double* across) {
  exchange_kernel<<<1, 64>>>(ballots, across);
}

void read_unwritten(float* into) { unwritten_kernel<<<1, 1>>>(into); }
void barrier_for_some() { barrier_for_some_kernel<<<1, 64>>>(); }
void barriers_at_two_places() { two_places_kernel<<<1, 64>>>(); }
void ballot_without_all_lanes() { missing_lane_kernel<<<1, 32>>>(); }
void ballot_of_half_a_warp() { half_warp_kernel<<<1, 32>>>(); }
void write_behind_shared_memory() { behind_kernel<<<1, 32>>>(); }
void load_vector(const float* from, float* to) { vector_kernel<<<1, 1>>>(from, to); }
void launch_threads(unsigned threads, std::uint32_t* counter) {
  count_kernel<<<1, threads>>>(counter);
}

}  // namespace kolo::emulator::sample
