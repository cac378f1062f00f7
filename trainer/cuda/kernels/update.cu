#include "trainer/cuda/kernels/update.h"

#include <algorithm>

#include "trainer/cuda/compute/status.h"
#include "trainer/cuda/kernels/element.cuh"

namespace kolo::trainer::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPack = 4;  // number of float32 elements

// These update one element. SGD does not use `second`.
struct AdamWElement {
  AdamWRates rates;
  static constexpr bool kHasSecond = true;
  __device__ void operator()(const UpdateDecision& decision, float gradient, float& first,
                             float& second, float& value) const {
    adamw_element(rates, decision, gradient, first, second, value);
  }
};

struct SgdElement {
  SgdRates rates;
  static constexpr bool kHasSecond = false;
  __device__ void operator()(const UpdateDecision& decision, float gradient, float& first, float&,
                             float& value) const {
    sgd_element(rates, decision, gradient, first, value);
  }
};

// Calls `body(G{})`, where G is the element type of gradients.
template <typename Body>
void visit_gradient(const UpdateArrays& a, Body&& body) {
  if (a.gradient_dtype == DType::kBFloat16) return std::forward<Body>(body)(__nv_bfloat16{});
  check(a.gradient_dtype == DType::kFloat32, "a gradient is float32 or bfloat16");
  std::forward<Body>(body)(float{});
}

// Updates N elements of the chunk, from index `i` on.
template <int N, typename G, typename T, typename Element>
__device__ void update_pack(const UpdateArrays& a, const UpdateChunk& chunk, T* copy,
                            const Element& element, const UpdateDecision& decision, std::size_t i) {
  const std::size_t at = chunk.offset + i, state = chunk.state + i;
  float gradient[N];
  float first[N];
  float second[N] = {};
  float value[N];
  load(static_cast<const G*>(chunk.gradient) + i, gradient);
  load(a.first + state, first);
  if constexpr (Element::kHasSecond) load(a.second + state, second);
  load(a.values + at, value);
#pragma unroll
  for (int k = 0; k < N; ++k) {
    element(decision, gradient[k], first[k], second[k], value[k]);
  }
  store(first, a.first + state);
  if constexpr (Element::kHasSecond) store(second, a.second + state);
  store(value, a.values + at);
  if (copy != nullptr) store(value, copy + at);
}

template <typename G, typename T, typename Element>
__global__ void update_kernel(UpdateArrays a, T* copy, Element of_all,
                              const UpdateDecision* decision_at) {
  const UpdateDecision decision = *decision_at;
  if (decision.is_skipped != 0) return;
  const UpdateChunk chunk = a.chunks[blockIdx.x];
  const Element element{rates_of(of_all.rates, chunk)};
  const std::size_t whole = chunk.count / kPack * kPack;
  for (std::size_t i = threadIdx.x * kPack; i < whole; i += kThreads * kPack) {
    update_pack<kPack, G>(a, chunk, copy, element, decision, i);
  }
  if (whole + threadIdx.x < chunk.count) {
    update_pack<1, G>(a, chunk, copy, element, decision, whole + threadIdx.x);
  }
}

template <typename Element>
void launch_update(NativeStream stream, const UpdateArrays& a, const Element& element,
                   const UpdateDecision* decision) {
  if (a.chunk_count == 0) return;
  visit_gradient(a, [&](auto gradient) {
    using G = decltype(gradient);
    visit_element(a.copy_dtype, [&](auto zero) {
      using T = decltype(zero);
      update_kernel<G><<<static_cast<unsigned>(a.chunk_count), kThreads, 0, native(stream)>>>(
          a, as<T>(a.copy), element, decision);
    });
  });
}

template <typename G>
__global__ void sum_squares_kernel(const UpdateChunk* chunks, double* sums) {
  __shared__ double scratch[kThreads / kWarpSize];
  const UpdateChunk chunk = chunks[blockIdx.x];
  const std::size_t whole = chunk.count / kPack * kPack;
  float sum = 0.0f;
  for (std::size_t i = threadIdx.x * kPack; i < whole; i += kThreads * kPack) {
    float g[kPack];
    load(static_cast<const G*>(chunk.gradient) + i, g);
#pragma unroll
    for (int k = 0; k < kPack; ++k) sum = fmaf(g[k], g[k], sum);
  }
  if (whole + threadIdx.x < chunk.count) {
    const float g = widen(static_cast<const G*>(chunk.gradient)[whole + threadIdx.x]);
    sum = fmaf(g, g, sum);
  }
  const double total = block_sum<kThreads>(static_cast<double>(sum), scratch);
  if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

// The total of `count` sums, valid in thread 0 only.
__device__ double total_of(const double* sums, std::size_t count, double* scratch) {
  double sum = 0.0;
  for (std::size_t i = threadIdx.x; i < count; i += kThreads) sum += sums[i];
  return block_sum<kThreads>(sum, scratch);
}

__global__ void add_up_kernel(const double* sums, std::size_t count, double* total) {
  __shared__ double scratch[kThreads / kWarpSize];
  const double sum = total_of(sums, count, scratch);
  if (threadIdx.x == 0) *total = sum;
}

__global__ void decide_kernel(const double* sums, std::size_t count, DecisionRule rule,
                              UpdateDecision* decision) {
  __shared__ double scratch[kThreads / kWarpSize];
  const double sum = total_of(sums, count, scratch);
  if (threadIdx.x == 0) *decision = decide(*decision, rule, sum);
}

template <bool kTurns>
__global__ void moment_kernel(MomentArrays a, MomentRates rates) {
  const float scale = kTurns ? static_cast<float>(*rates.survival * rates.correction) : 0.0f;
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * kThreads;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x; i < a.count;
       i += stride) {
    const float gradient = a.gradient[i];
    const float next = second_moment(rates.beta2, gradient, a.moment[i]);
    a.next[i] = next;
    if (kTurns) a.gradient[i] = adam_direction(gradient, next, scale, rates.epsilon);
  }
}

__global__ void measure_average_kernel(const double* sums, std::size_t count, double beta2,
                                       const UpdateDecision* decision, double* energy) {
  __shared__ double scratch[kThreads / kWarpSize];
  const double sum = total_of(sums, count, scratch);
  if (threadIdx.x == 0 && decision->is_skipped == 0) {
    *energy = beta2 * *energy + (1.0 - beta2) * sum;
  }
}

__global__ void measure_survival_kernel(const float* moment, std::size_t count,
                                        const double* energy, double* survival) {
  __shared__ double scratch[kThreads / kWarpSize];
  double sum = 0.0;
  for (std::size_t i = threadIdx.x; i < count; i += kThreads) sum += static_cast<double>(moment[i]);
  const double own = block_sum<kThreads>(sum, scratch);
  if (threadIdx.x == 0) *survival = own > 0.0 && *energy > 0.0 ? *energy / own : 1.0;
}

}  // namespace

void update_adamw(NativeStream stream, const UpdateArrays& a, const AdamWRates& rates,
                  const UpdateDecision* decision) {
  launch_update(stream, a, AdamWElement{rates}, decision);
  check_launch("update_adamw");
}

void update_sgd(NativeStream stream, const UpdateArrays& a, const SgdRates& rates,
                const UpdateDecision* decision) {
  launch_update(stream, a, SgdElement{rates}, decision);
  check_launch("update_sgd");
}

void enter_moment(NativeStream stream, const MomentArrays& a, const MomentRates& rates) {
  if (a.count == 0) return;
  constexpr std::size_t kMostBlocks = 1 << 16;
  const auto blocks =
      static_cast<unsigned>(std::min(kMostBlocks, (a.count + kThreads - 1) / kThreads));
  if (rates.survival == nullptr) {
    moment_kernel<false><<<blocks, kThreads, 0, native(stream)>>>(a, rates);
  } else {
    moment_kernel<true><<<blocks, kThreads, 0, native(stream)>>>(a, rates);
  }
  check_launch("enter_moment");
}

void measure_average(NativeStream stream, const double* sums, std::size_t count, float beta2,
                     const UpdateDecision* decision, double* energy) {
  measure_average_kernel<<<1, kThreads, 0, native(stream)>>>(
      sums, count, static_cast<double>(beta2), decision, energy);
  check_launch("measure_average");
}

void measure_survival(NativeStream stream, const float* moment, std::size_t count,
                      const double* energy, double* survival) {
  measure_survival_kernel<<<1, kThreads, 0, native(stream)>>>(moment, count, energy, survival);
  check_launch("measure_survival");
}

void sum_squares(NativeStream stream, const UpdateArrays& a, double* sums) {
  if (a.chunk_count == 0) return;
  visit_gradient(a, [&](auto gradient) {
    using G = decltype(gradient);
    sum_squares_kernel<G>
        <<<static_cast<unsigned>(a.chunk_count), kThreads, 0, native(stream)>>>(a.chunks, sums);
  });
  check_launch("sum_squares");
}

void add_up(NativeStream stream, const double* sums, std::size_t count, double* total) {
  add_up_kernel<<<1, kThreads, 0, native(stream)>>>(sums, count, total);
  check_launch("add_up");
}

void decide_update(NativeStream stream, const double* sums, std::size_t count,
                   const DecisionRule& rule, UpdateDecision* decision) {
  decide_kernel<<<1, kThreads, 0, native(stream)>>>(sums, count, rule, decision);
  check_launch("decide");
}

}  // namespace kolo::trainer::cuda
