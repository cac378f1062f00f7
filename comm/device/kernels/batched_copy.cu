#include "comm/device/kernels/kernels.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "comm/base/visit_dtype.h"
#include "comm/device/kernels/element.h"
#include "comm/device/kernels/group.cuh"
#include "comm/device/kernels/launch.cuh"

namespace kolo {
namespace {

constexpr int kThreads = 256;
constexpr int kBytesInFlight = 64;  // bytes of loads in flight per thread
constexpr int kMostInFlight = 8;    // limit of loads in flight per thread

/// Map of a copy without cast and scale. T is an unsigned integer unless values are checked.
template <typename T>
struct CopyBits {
  using To = T;
  using From = T;
  static constexpr int kGroup = access::kBytes / sizeof(T);
  __device__ T operator()(T value) const { return value; }
};

template <typename ToType, typename FromType>
struct CastAndScale {
  using To = ToType;
  using From = FromType;
  // For the dtype pairs of gradients, a group has 16 bytes of the larger dtype and fewer of the
  // smaller, so that the threads of a warp access neighbouring bytes of both arrays.
  static constexpr bool kVectors =
      std::is_same_v<To, From> || std::is_same_v<element::Common<To, From>, float>;
  static constexpr int kGroup = kVectors ? access::kBytes / std::max(sizeof(To), sizeof(From)) : 1;
  element::Common<To, From> factor;
  __device__ To operator()(From value) const { return element::convert<To>(value, factor); }
};

/// Computes target[i] = map(source[i]) for i < count with all threads of the block. Returns whether
/// a value that this thread computed was not finite.
template <typename Map>
__device__ bool copy_piece(typename Map::To* target, const typename Map::From* source,
                           std::size_t count, const Map& map) {
  using To = typename Map::To;
  using From = typename Map::From;
  constexpr int kGroup = Map::kGroup;
  constexpr int kUnroll =
      std::min(kMostInFlight, kBytesInFlight / (kGroup * static_cast<int>(sizeof(From))));
  const access::Split split = access::split(address(target), sizeof(To), kGroup, count);
  bool bad = false;
  for (std::size_t i = threadIdx.x; i < split.head + split.tail; i += kThreads) {
    const std::size_t at = access::single(split, kGroup, i);
    const To value = map(source[at]);
    bad |= element::non_finite(value);
    target[at] = value;
  }
  target += split.head;
  source += split.head;
  for (std::size_t first = threadIdx.x; first < split.groups; first += kThreads * kUnroll) {
    Group<From, kGroup> in[kUnroll];
    load(in, source + first * kGroup, std::size_t{kThreads} * kGroup,
         (split.groups - first) * kGroup);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::size_t group = first + static_cast<std::size_t>(u) * kThreads;
      if (group >= split.groups) break;
      Group<To, kGroup> out;
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        out.values[i] = map(in[u].values[i]);
        bad |= element::non_finite(out.values[i]);
      }
      store(target + group * kGroup, out);
    }
  }
  return bad;
}

/// Writes zeros to a gap of a bucket. A gap is short: less than an alignment, or the end of a
/// padded bucket.
template <typename T>
__device__ void write_zeros(T* target, std::size_t count) {
  for (std::size_t i = threadIdx.x; i < count; i += kThreads) target[i] = T{};
}

template <typename Map, bool kPacks>
__global__ void __launch_bounds__(kThreads)
    copy_chunks(const CopyChunk* chunks, std::size_t num_chunks, void* bucket, Map map,
                std::uint32_t* non_finite) {
  using To = typename Map::To;
  using From = typename Map::From;
  bool bad = false;
  CopyChunk next = chunks[blockIdx.x];
  for (std::size_t i = blockIdx.x; i < num_chunks; i += gridDim.x) {
    const CopyChunk chunk = next;
    if (i + gridDim.x < num_chunks) next = chunks[i + gridDim.x];
    if constexpr (kPacks) {
      To* const place = static_cast<To*>(bucket) + chunk.offset;
      if (chunk.tensor == nullptr) {
        write_zeros(place, chunk.count);
      } else {
        bad |= copy_piece(place, static_cast<const From*>(chunk.tensor), chunk.count, map);
      }
    } else if (chunk.tensor != nullptr) {
      const From* const place = static_cast<const From*>(bucket) + chunk.offset;
      bad |= copy_piece(static_cast<To*>(chunk.tensor), place, chunk.count, map);
    }
  }
  if (bad && non_finite != nullptr) *non_finite = 1;  // all writers write the same value
}

template <typename Map>
void launch(const BatchedCopy& copy, const Map& map, cudaStream_t stream) {
  const auto kernel =
      copy.direction == CopyDirection::kPack ? copy_chunks<Map, true> : copy_chunks<Map, false>;
  gpu::launch("batched copy", kernel, kThreads, copy.chunks.size(), stream, copy.chunks.data(),
              copy.chunks.size(), copy.bucket, map, copy.non_finite);
}

void launch_bits(const BatchedCopy& copy, cudaStream_t stream) {
  switch (size_of(copy.bucket_dtype)) {
    case 1:
      return launch(copy, CopyBits<std::uint8_t>{}, stream);
    case 2:
      return launch(copy, CopyBits<std::uint16_t>{}, stream);
    case 4:
      return launch(copy, CopyBits<std::uint32_t>{}, stream);
    case 8:
      return launch(copy, CopyBits<std::uint64_t>{}, stream);
  }
}

}  // namespace

void launch_batched_copy(const BatchedCopy& copy, void* cuda_stream) {
  const auto stream = static_cast<cudaStream_t>(cuda_stream);
  const bool packs = copy.direction == CopyDirection::kPack;
  const DType from = packs ? copy.tensor_dtype : copy.bucket_dtype;
  const DType to = packs ? copy.bucket_dtype : copy.tensor_dtype;
  const bool looks = copy.non_finite != nullptr && is_float(to);
  if (from == to && copy.scale == 1.0 && !looks) return launch_bits(copy, stream);
  visit_dtype(to, [&]<typename To>(std::type_identity<To>) {
    if constexpr (!std::is_integral_v<To>) {
      if (from == to && copy.scale == 1.0) return launch(copy, CopyBits<To>{}, stream);
    }
    visit_dtype(from, [&]<typename From>(std::type_identity<From>) {
      using Factor = element::Common<To, From>;
      launch(copy, CastAndScale<To, From>{static_cast<Factor>(copy.scale)}, stream);
    });
  });
}

void load_batched_copy() {
  std::uint32_t flag = 0;
  for (const DType tensor : kNumberDTypes) {
    for (const DType bucket : kNumberDTypes) {
      for (const CopyDirection direction : {CopyDirection::kPack, CopyDirection::kUnpack}) {
        BatchedCopy copy{.direction = direction, .tensor_dtype = tensor, .bucket_dtype = bucket};
        for (copy.scale = 1; copy.scale <= 2; ++copy.scale) {
          copy.non_finite = nullptr;
          launch_batched_copy(copy, nullptr);
          copy.non_finite = &flag;
          launch_batched_copy(copy, nullptr);
        }
      }
    }
  }
}

}  // namespace kolo
