#include <cstdint>

#include "comm/base/check.h"
#include "comm/device/cuda_error.h"
#include "comm/device/kernels/kernels.h"
#include "comm/device/kernels/launch.cuh"
#include "comm/device/kernels/top_k.h"
#include "comm/kernels/radix_key.h"

namespace kolo {
namespace {

using radix::digit;

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffff;

/// The task and the arrays of the workspace. Every launch gets it by value.
struct Work {
  const float* residual;
  const float* gradient;
  float* sums;
  float scale;
  const float* velocity;
  float* next_velocity;
  float momentum;
  std::uint32_t* non_finite;
  std::uint32_t count, k;
  std::uint32_t* indices;
  float* values;
  std::uint32_t section, sections, most_survivors;
  TopKCounters* counters;
  std::uint32_t* survivor_indices;
  float* survivor_values;
  std::uint32_t* survivor_counts;
  std::uint32_t* above;
  std::uint32_t* equal;
};

__device__ std::uint32_t* histogram(const Work& work, int of_digit) {
  std::uint32_t* bins = work.counters->histograms;
  for (int i = 0; i < of_digit; ++i) bins += digit(i).bins();
  return bins;
}

/// True if this block is the last of its launch to reach this point. The last block sees the writes
/// of all other blocks.
__device__ bool is_last_block(std::uint32_t* blocks_done) {
  __shared__ bool is_last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) is_last = atomicAdd(blocks_done, 1u) == gridDim.x - 1;
  __syncthreads();
  if (is_last) __threadfence();
  return is_last;
}

/// Adds a block's histogram `bins`, in shared memory, to the histogram of the digit; the last block
/// then finds the digit.
template <int kDigit>
__device__ void finish_digit(const Work& work, std::uint32_t* bins) {
  constexpr std::uint32_t kBins = digit(kDigit).bins();
  constexpr std::uint32_t kPart = 32;  // bins that one thread sums
  std::uint32_t* const total = histogram(work, kDigit);
  __syncthreads();
  for (std::uint32_t i = threadIdx.x; i < kBins; i += kThreads) {
    if (bins[i] != 0) atomicAdd(&total[i], bins[i]);
  }
  if (!is_last_block(&work.counters->blocks_done[kDigit])) return;
  __shared__ std::uint32_t parts[kBins / kPart];
  for (std::uint32_t i = threadIdx.x; i < kBins; i += kThreads) bins[i] = __ldcg(&total[i]);
  __syncthreads();
  for (std::uint32_t part = threadIdx.x; part < kBins / kPart; part += kThreads) {
    std::uint32_t sum = 0;
    for (std::uint32_t i = 0; i < kPart; ++i) sum += bins[part * kPart + i];
    parts[part] = sum;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  const radix::Selection before =
      kDigit == 0 ? radix::Selection{0, work.k} : work.counters->selections[kDigit - 1];
  const radix::Bin part = radix::find_bin(parts, kBins / kPart, before.need);
  radix::Bin bin = radix::find_bin(bins + part.index * kPart, kPart, part.need);
  bin.index += part.index * kPart;
  work.counters->selections[kDigit] = radix::refined(before, digit(kDigit), bin);
}

template <int kBins>
__device__ void clear(std::uint32_t (&bins)[kBins]) {
  for (int i = threadIdx.x; i < kBins; i += kThreads) bins[i] = 0;
  __syncthreads();
}

/// Accesses four adjacent floats; `is_wide` if the address is a multiple of 16 bytes.
__device__ float4 load_quad(const float* from, bool is_wide) {
  if (is_wide) return *reinterpret_cast<const float4*>(from);
  return float4{from[0], from[1], from[2], from[3]};
}

__device__ void store_quad(float* to, bool is_wide, const float4& quad) {
  if (is_wide) {
    *reinterpret_cast<float4*>(to) = quad;
  } else {
    to[0] = quad.x, to[1] = quad.y, to[2] = quad.z, to[3] = quad.w;
  }
}

__device__ bool is_aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % access::kBytes == 0;
}

// 1. Folds the gradient, and the velocity, and computes the histogram of the first digit.
template <bool kHasMomentum>
__global__ void __launch_bounds__(kThreads) accumulate(Work work) {
  constexpr int kVectors = 2;  // vectors of each input in flight
  __shared__ std::uint32_t bins[digit(0).bins()];
  clear(bins);
  bool bad = false;
  const auto fold = [&](float residual, float gradient, float& velocity) {
    float update = work.scale * gradient;
    if constexpr (kHasMomentum) {
      update = velocity = radix::accumulate(work.momentum * velocity, update);
    }
    const float sum = radix::accumulate(residual, update);
    const std::uint32_t key = radix::key_of(sum);
    bad |= key >= radix::kInfinityKey;
    atomicAdd(&bins[digit(0).of(key)], 1u);
    return sum;
  };
  const bool is_wide = is_aligned(work.gradient), stores_wide = is_aligned(work.sums);
  const std::uint32_t vectors = work.count / 4;
  constexpr std::uint32_t kTile = kThreads * kVectors;
  for (std::uint32_t tile = blockIdx.x * kTile; tile < vectors; tile += gridDim.x * kTile) {
    float4 residual[kVectors], gradient[kVectors], velocity[kVectors];
#pragma unroll
    for (int u = 0; u < kVectors; ++u) {
      const std::uint32_t at = tile + u * kThreads + threadIdx.x;
      if (at >= vectors) break;
      residual[u] = load_quad(work.residual + 4 * at, true);
      gradient[u] = load_quad(work.gradient + 4 * at, is_wide);
      if constexpr (kHasMomentum) velocity[u] = load_quad(work.velocity + 4 * at, true);
    }
#pragma unroll
    for (int u = 0; u < kVectors; ++u) {
      const std::uint32_t at = tile + u * kThreads + threadIdx.x;
      if (at >= vectors) break;
      const float4 sum = {fold(residual[u].x, gradient[u].x, velocity[u].x),
                          fold(residual[u].y, gradient[u].y, velocity[u].y),
                          fold(residual[u].z, gradient[u].z, velocity[u].z),
                          fold(residual[u].w, gradient[u].w, velocity[u].w)};
      store_quad(work.sums + 4 * at, stores_wide, sum);
      if constexpr (kHasMomentum) store_quad(work.next_velocity + 4 * at, true, velocity[u]);
    }
  }
  const std::uint32_t tail = vectors * 4 + threadIdx.x;
  if (blockIdx.x == 0 && tail < work.count) {
    float velocity = kHasMomentum ? work.velocity[tail] : 0.0f;
    work.sums[tail] = fold(work.residual[tail], work.gradient[tail], velocity);
    if constexpr (kHasMomentum) work.next_velocity[tail] = velocity;
  }
  if (bad && work.non_finite != nullptr) *work.non_finite = 1;  // all writers write the same value
  if (work.k != 0) finish_digit<0>(work, bins);
}

__device__ std::uint32_t lane() { return threadIdx.x % kWarp; }

/// Calls `visit(section)` in each warp of the launch for the sections of that warp.
template <typename Visit>
__device__ void for_each_section(const Work& work, const Visit& visit) {
  constexpr std::uint32_t kWarps = kThreads / kWarp;
  for (std::uint32_t section = blockIdx.x * kWarps + threadIdx.x / kWarp; section < work.sections;
       section += gridDim.x * kWarps) {
    visit(section);
  }
}

__device__ std::uint32_t section_begin(const Work& work, std::uint32_t section) {
  return section * work.section;
}

__device__ std::uint32_t section_end(const Work& work, std::uint32_t section) {
  return min(work.count, (section + 1) * work.section);
}

// 2. Collects each section's survivors in order. A lane holds four adjacent elements, so a row is
// ordered by lane, then by element.
__global__ void __launch_bounds__(kThreads) collect(Work work) {
  constexpr std::uint32_t kRow = kWarp * 4;
  constexpr int kRows = TopKPlan::kTile / kRow;
  const std::uint32_t threshold = work.counters->selections[0].prefix;
  const std::uint32_t lanes_before = (1u << lane()) - 1;
  for_each_section(work, [&](std::uint32_t section) {
    const std::uint32_t end = section_end(work, section);
    const std::size_t list = std::size_t{section} * work.most_survivors;
    std::uint32_t found = 0;
    for (std::uint32_t tile = section_begin(work, section); tile < end; tile += TopKPlan::kTile) {
      float rows[kRows][4];
      if (tile + TopKPlan::kTile <= end) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const auto* const at = &work.sums[tile + r * kRow + lane() * 4];
          const float4 row = *reinterpret_cast<const float4*>(at);
          rows[r][0] = row.x, rows[r][1] = row.y, rows[r][2] = row.z, rows[r][3] = row.w;
        }
      } else {
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const std::uint32_t at = tile + r * kRow + lane() * 4 + i;
            rows[r][i] = at < end ? work.sums[at] : 0.0f;
          }
        }
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const std::uint32_t at = tile + r * kRow + lane() * 4;
        bool survives[4];
        std::uint32_t before = found;
        std::uint32_t row_found = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          survives[i] = at + i < end && digit(0).of(radix::key_of(rows[r][i])) >= threshold;
          const unsigned ballot = __ballot_sync(kAllLanes, survives[i]);
          before += __popc(ballot & lanes_before);
          row_found += __popc(ballot);
        }
        found += row_found;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (!survives[i]) continue;
          if (before < work.most_survivors) {
            work.survivor_indices[list + before] = at + i;
            work.survivor_values[list + before] = rows[r][i];
          }
          ++before;
        }
      }
    }
    if (lane() == 0) work.survivor_counts[section] = found;
  });
}

struct Survivor {
  bool exists;
  std::uint32_t index;
  float value;
};

/// Calls `visit(survivor)` in all lanes of a warp for the survivors of a section, 32 at a time, in
/// order. If the list was too short, visits every element of the section.
template <typename Visit>
__device__ void for_each_survivor(const Work& work, std::uint32_t section, const Visit& visit) {
  const std::uint32_t listed = work.survivor_counts[section];
  const bool is_list = listed <= work.most_survivors;
  const std::uint32_t begin = section_begin(work, section);
  const std::uint32_t entries = is_list ? listed : section_end(work, section) - begin;
  const std::size_t list = std::size_t{section} * work.most_survivors;
  for (std::uint32_t first = 0; first < entries; first += kWarp) {
    const std::uint32_t entry = first + lane();
    Survivor survivor = {entry < entries, 0, 0.0f};
    if (survivor.exists) {
      survivor.index = is_list ? work.survivor_indices[list + entry] : begin + entry;
      survivor.value = is_list ? work.survivor_values[list + entry] : work.sums[begin + entry];
    }
    visit(survivor);
  }
}

// 3. and 4. Computes the histogram of a further digit of the survivors with the selected prefix.
template <int kDigit>
__global__ void __launch_bounds__(kThreads) refine(Work work) {
  __shared__ std::uint32_t bins[digit(kDigit).bins()];
  clear(bins);
  const std::uint32_t prefix = work.counters->selections[kDigit - 1].prefix;
  for_each_section(work, [&](std::uint32_t section) {
    for_each_survivor(work, section, [&](const Survivor& survivor) {
      const std::uint32_t key = radix::key_of(survivor.value);
      if (survivor.exists && digit(kDigit).prefix(key) == prefix) {
        atomicAdd(&bins[digit(kDigit).of(key)], 1u);
      }
    });
  });
  finish_digit<kDigit>(work, bins);
}

/// Replaces values[0, count) by their exclusive prefix sums, in one block.
__device__ void exclusive_sums(std::uint32_t* values, std::uint32_t count) {
  // Adjacent values per thread, whose loads are in flight together.
  constexpr std::uint32_t kShare = 16;
  __shared__ std::uint32_t sums[kThreads];
  std::uint32_t before_tile = 0;
  for (std::uint32_t tile = 0; tile < count; tile += kThreads * kShare) {
    const std::uint32_t begin = tile + threadIdx.x * kShare;
    std::uint32_t share[kShare];
    std::uint32_t own = 0;
#pragma unroll
    for (std::uint32_t i = 0; i < kShare; ++i) {
      share[i] = begin + i < count ? __ldcg(&values[begin + i]) : 0;
    }
#pragma unroll
    for (std::uint32_t i = 0; i < kShare; ++i) own += share[i];
    sums[threadIdx.x] = own;
    __syncthreads();
    for (int distance = 1; distance < kThreads; distance *= 2) {
      const int from = static_cast<int>(threadIdx.x) - distance;
      const std::uint32_t more = from >= 0 ? sums[from] : 0;
      __syncthreads();
      sums[threadIdx.x] += more;
      __syncthreads();
    }
    std::uint32_t before = before_tile + sums[threadIdx.x] - own;
#pragma unroll
    for (std::uint32_t i = 0; i < kShare; ++i) {
      if (begin + i < count) values[begin + i] = before;
      before += share[i];
    }
    before_tile += sums[kThreads - 1];
    __syncthreads();
  }
}

// 5. Counts the elements above the threshold and equal to it that precede each section.
__global__ void __launch_bounds__(kThreads) count_selected(Work work) {
  const std::uint32_t threshold = work.counters->selections[2].prefix;
  for_each_section(work, [&](std::uint32_t section) {
    std::uint32_t above = 0;
    std::uint32_t equal = 0;
    for_each_survivor(work, section, [&](const Survivor& survivor) {
      const std::uint32_t key = radix::key_of(survivor.value);
      above += __popc(__ballot_sync(kAllLanes, survivor.exists && key > threshold));
      equal += __popc(__ballot_sync(kAllLanes, survivor.exists && key == threshold));
    });
    if (lane() == 0) {
      work.above[section] = above;
      work.equal[section] = equal;
    }
  });
  if (!is_last_block(&work.counters->blocks_done[3])) return;
  exclusive_sums(work.above, work.sections);
  exclusive_sums(work.equal, work.sections);
}

// 6. Writes the selected elements in order.
__global__ void __launch_bounds__(kThreads) take_selected(Work work) {
  const std::uint32_t threshold = work.counters->selections[2].prefix;
  const std::uint32_t need = work.counters->selections[2].need;
  const std::uint32_t lanes_before = (1u << lane()) - 1;
  for_each_section(work, [&](std::uint32_t section) {
    std::uint32_t above = work.above[section];
    std::uint32_t equal = work.equal[section];
    for_each_survivor(work, section, [&](const Survivor& survivor) {
      const std::uint32_t key = radix::key_of(survivor.value);
      const bool is_above = survivor.exists && key > threshold;
      const bool is_equal = survivor.exists && key == threshold;
      const unsigned above_ballot = __ballot_sync(kAllLanes, is_above);
      const unsigned equal_ballot = __ballot_sync(kAllLanes, is_equal);
      const std::uint32_t equal_before = equal + __popc(equal_ballot & lanes_before);
      if (is_above || (is_equal && equal_before < need)) {
        const std::uint32_t at =
            radix::place(above + __popc(above_ballot & lanes_before), equal_before, need);
        work.indices[at] = survivor.index;
        work.values[at] = survivor.value;
      }
      above += __popc(above_ballot);
      equal += __popc(equal_ballot);
    });
  });
}

Work divide(const TopK& task, const TopKPlan& plan, std::byte* workspace) {
  const auto at = [&](std::size_t offset) {
    return reinterpret_cast<std::uint32_t*>(workspace + offset);
  };
  return {.residual = task.residual,
          .gradient = task.gradient,
          .sums = task.sums,
          .scale = task.scale,
          .velocity = task.velocity,
          .next_velocity = task.next_velocity,
          .momentum = task.momentum,
          .non_finite = task.non_finite,
          .count = static_cast<std::uint32_t>(task.count),
          .k = static_cast<std::uint32_t>(task.k),
          .indices = task.indices,
          .values = task.values,
          .section = static_cast<std::uint32_t>(plan.section),
          .sections = static_cast<std::uint32_t>(plan.sections),
          .most_survivors = static_cast<std::uint32_t>(plan.most_survivors),
          .counters = reinterpret_cast<TopKCounters*>(workspace),
          .survivor_indices = at(plan.survivor_indices),
          .survivor_values = reinterpret_cast<float*>(workspace + plan.survivor_values),
          .survivor_counts = at(plan.survivor_counts),
          .above = at(plan.above),
          .equal = at(plan.equal)};
}

/// Enqueues all launches after the fold.
void launch_selection(const Work& work, std::size_t blocks, cudaStream_t stream) {
  gpu::launch("top-k: collect", collect, kThreads, blocks, stream, work);
  gpu::launch("top-k: second digit", refine<1>, kThreads, blocks, stream, work);
  gpu::launch("top-k: third digit", refine<2>, kThreads, blocks, stream, work);
  gpu::launch("top-k: count", count_selected, kThreads, blocks, stream, work);
  gpu::launch("top-k: take", take_selected, kThreads, blocks, stream, work);
}

}  // namespace

void launch_top_k(const TopK& task, Span<std::byte> workspace, void* cuda_stream) {
  check_top_k(task, workspace);
  if (task.count == 0) return;
  const auto stream = static_cast<cudaStream_t>(cuda_stream);
  const TopKPlan plan = plan_top_k(task.count);
  const Work work = divide(task, plan, workspace.data());
  if (task.k != 0) {
    require_cuda(cudaMemsetAsync(work.counters, 0, sizeof(TopKCounters), stream),
                 "cudaMemsetAsync");
  }
  gpu::launch("top-k: fold", task.velocity == nullptr ? accumulate<false> : accumulate<true>,
              kThreads, access::ceil_divide(task.count, kThreads * 8), stream, work);
  if (task.k == 0) return;
  launch_selection(work, access::ceil_divide(plan.sections, kThreads / kWarp), stream);
}

void load_top_k() {
  for (const auto fold : {accumulate<false>, accumulate<true>}) {
    gpu::launch("top-k: fold", fold, kThreads, 0, nullptr, Work{});
  }
  launch_selection({}, 0, nullptr);
}

}  // namespace kolo
