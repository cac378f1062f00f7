#include "trainer/cuda/kernels/embedding.h"

#include "trainer/cuda/compute/status.h"
#include "trainer/cuda/kernels/column_sums.h"
#include "trainer/cuda/kernels/element.cuh"

namespace kolo::trainer::cuda {
namespace {

constexpr int kThreads = 128;

template <typename T, int N>
__global__ void embed_kernel(std::size_t length, std::size_t width, const std::uint8_t* bytes,
                             const float* token, const float* position, T* y) {
  const std::size_t row = blockIdx.x;
  const float* token_row = token + bytes[row] * width;
  const float* position_row = position + row % length * width;
  for (std::size_t c = threadIdx.x * N; c < width; c += kThreads * N) {
    float v[N];
    float p[N];
    load(token_row + c, v);
    load(position_row + c, p);
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] += p[i];
    store(v, y + row * width + c);
  }
}

template <typename T>
__global__ void position_gradient_kernel(std::size_t sequences, std::size_t count, const T* dy,
                                         float* dposition) {
  const std::size_t i = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  float sum = 0.0f;
  for (std::size_t s = 0; s < sequences; ++s) sum += widen(dy[s * count + i]);
  dposition[i] = sum;
}

// Block (columns, token, part) scans the bytes of its part, a tile at a time in shared memory, and
// sums the gradient rows of its token in order.
template <typename T>
__global__ void token_gradient_kernel(std::size_t rows, std::size_t width,
                                      const std::uint8_t* bytes, const T* dy, float* partials) {
  __shared__ std::uint8_t tile[kThreads];
  const std::size_t column = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
  const unsigned token = blockIdx.y;
  const std::size_t per_part = ceil_div<std::size_t>(rows, gridDim.z);
  const std::size_t begin = blockIdx.z * per_part;
  const std::size_t end = begin + per_part < rows ? begin + per_part : rows;
  float sum = 0.0f;
  for (std::size_t first = begin; first < end; first += kThreads) {
    const std::size_t count = end - first < kThreads ? end - first : kThreads;
    __syncthreads();
    if (threadIdx.x < count) tile[threadIdx.x] = bytes[first + threadIdx.x];
    __syncthreads();
    if (column >= width) continue;
    for (std::size_t i = 0; i < count; ++i) {
      if (tile[i] == token) sum += widen(dy[(first + i) * width + column]);
    }
  }
  if (column < width) partials[(blockIdx.z * kTokens + token) * width + column] = sum;
}

}  // namespace

void embed(NativeStream stream, const EmbeddingForward& s) {
  visit_packed(s.dtype, s.width, [&](auto element, auto pack) {
    using T = decltype(element);
    embed_kernel<T, decltype(pack)::value>
        <<<static_cast<unsigned>(s.rows), kThreads, 0, native(stream)>>>(
            s.length, s.width, s.bytes, s.token, s.position, as<T>(s.y));
  });
  check_launch("embed");
}

void embed_backward(NativeStream stream, const EmbeddingBackward& s) {
  const std::size_t parts = token_parts(s.rows);
  const std::size_t positions = s.length * s.width;
  const auto position_blocks = static_cast<unsigned>(ceil_div<std::size_t>(positions, kThreads));
  const auto column_blocks = static_cast<unsigned>(ceil_div<std::size_t>(s.width, kThreads));
  visit_element(s.dtype, [&](auto element) {
    using T = decltype(element);
    position_gradient_kernel<<<position_blocks, kThreads, 0, native(stream)>>>(
        s.rows / s.length, positions, as<T>(s.dy), s.dposition);
    token_gradient_kernel<<<dim3(column_blocks, kTokens, static_cast<unsigned>(parts)), kThreads, 0,
                            native(stream)>>>(s.rows, s.width, s.bytes, as<T>(s.dy), s.partials);
  });
  check_launch("embed_backward");
  fold(stream, {.partials = s.partials,
                .parts = parts,
                .stride = kTokens * s.width,
                .width = kTokens * s.width,
                .mode = FoldInto::kAdd,
                .into = s.dtoken});
}

}  // namespace kolo::trainer::cuda
