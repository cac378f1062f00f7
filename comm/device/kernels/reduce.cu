#include "comm/device/kernels/kernels.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "comm/base/check.h"
#include "comm/base/visit_dtype.h"
#include "comm/device/device_kernels.h"
#include "comm/device/kernels/element.h"
#include "comm/device/kernels/group.cuh"
#include "comm/device/kernels/launch.cuh"
#include "comm/kernels/combine.h"

namespace kolo {
namespace {

constexpr int kThreads = 256;
constexpr int kLoadsInFlight = 4;                         // per thread and source
constexpr std::size_t kTile = kThreads * kLoadsInFlight;  // groups that a block handles at a time

struct Sources {
  const void* data[kMostReduceSources];
  int count;
};

/// Combines, scales and stores up to kUnroll groups before `end`: at `at`, `at + stride`, ...
template <typename T, typename Op, int kGroup, int kUnroll>
__device__ void reduce_groups(T* target, const Sources& sources, std::size_t at, std::size_t stride,
                              std::size_t end, const element::ElementScaling<T>& scale) {
  using A = element::Accum<T>;
  A sums[kUnroll][kGroup];
  for (int s = 0; s < sources.count; ++s) {
    const T* const source = static_cast<const T*>(sources.data[s]) + at;
    Group<T, kGroup> in[kUnroll];
    load(in, source, stride, end - at);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        const A value = element::widen<A>(in[u].values[i]);
        sums[u][i] = s == 0 ? value : Op::apply(sums[u][i], value);
      }
    }
  }
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const std::size_t place = at + static_cast<std::size_t>(u) * stride;
    if (place >= end) break;
    Group<T, kGroup> out;
#pragma unroll
    for (int i = 0; i < kGroup; ++i) out.values[i] = element::scaled<T>(sums[u][i], scale);
    store(target + place, out);
  }
}

template <typename T, typename Op>
__global__ void __launch_bounds__(kThreads)
    reduce_sources(T* target, Sources sources, std::size_t count,
                   element::ElementScaling<T> scale) {
  constexpr int kGroup = access::kBytes / sizeof(T);
  const access::Split split = access::split(address(target), sizeof(T), kGroup, count);
  const std::size_t thread = blockIdx.x * std::size_t{kThreads} + threadIdx.x;
  if (thread < split.head + split.tail) {
    const std::size_t at = access::single(split, kGroup, thread);
    reduce_groups<T, Op, 1, 1>(target, sources, at, 1, at + 1, scale);
  }
  const std::size_t end = split.head + split.groups * kGroup;
  for (std::size_t tile = blockIdx.x * kTile; tile < split.groups; tile += gridDim.x * kTile) {
    const std::size_t at = split.head + (tile + threadIdx.x) * kGroup;
    if (at < end) {
      reduce_groups<T, Op, kGroup, kLoadsInFlight>(target, sources, at,
                                                   std::size_t{kThreads} * kGroup, end, scale);
    }
  }
}

template <typename T, typename Op>
void launch(void* target, const Sources& sources, std::size_t count,
            const element::ElementScaling<T>& scale, cudaStream_t stream) {
  const std::size_t groups = access::ceil_divide(count, access::kBytes / sizeof(T));
  gpu::launch("reduction", reduce_sources<T, Op>, kThreads, access::ceil_divide(groups, kTile),
              stream, static_cast<T*>(target), sources, count, scale);
}

template <typename T>
void launch(ReduceOp op, void* target, const Sources& sources, std::size_t count,
            const element::ElementScaling<T>& scale, cudaStream_t stream) {
  combine::visit_op(op, [&]<typename Op>(Op) {
    if constexpr (combine::Combines<Op, float> && combine::Combines<Op, element::Accum<T>>) {
      launch<T, Op>(target, sources, count, scale, stream);
    } else {
      ensure(false, "kernels of the device combine numbers by the operations of kNumberOps");
    }
  });
}

}  // namespace

void launch_reduce(DType dtype, ReduceOp op, void* target, Span<const void* const> sources,
                   std::size_t count, double scale, void* cuda_stream) {
  check(!sources.empty() && sources.size() <= kMostReduceSources,
        "a reduction on the device takes 1 to 64 sources");
  Sources by_value = {};
  std::copy(sources.begin(), sources.end(), by_value.data);
  by_value.count = static_cast<int>(sources.size());
  visit_dtype(dtype, [&]<typename T>(std::type_identity<T>) {
    launch<T>(op, target, by_value, count, element::ElementScaling<T>(scale),
              static_cast<cudaStream_t>(cuda_stream));
  });
}

void load_reduce() {
  const void* const none = nullptr;
  for (const DType dtype : kNumberDTypes) {
    for (const ReduceOp op : kNumberOps)
      launch_reduce(dtype, op, nullptr, {&none, 1}, 0, 1, nullptr);
  }
}

}  // namespace kolo
