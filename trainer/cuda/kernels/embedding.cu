#include "trainer/cuda/kernels/embedding.h"

#include "trainer/cuda/compute/status.h"
#include "trainer/cuda/kernels/element.cuh"

namespace kolo::trainer::cuda {
namespace {

constexpr int kThreads = 128;

template <typename T, int N>
__global__ void embed_kernel(std::size_t length, std::size_t width, const std::int32_t* tokens,
                             const float* token, const float* position, T* y) {
  const std::size_t row = blockIdx.x;
  const float* token_row = token + static_cast<std::size_t>(tokens[row]) * width;
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
                                         bool adds, float* dposition) {
  const std::size_t i = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  float sum = adds ? dposition[i] : 0.0f;
  for (std::size_t s = 0; s < sequences; ++s) sum += widen(dy[s * count + i]);
  dposition[i] = sum;
}

// Block (slice, columns) sums the rows of each token in its slice of the order. The sum of a token
// whose other rows lie in slices before goes to the slice's first partial sum, and the sum of one
// that begins here and has rows in later slices to its second.
template <typename T>
__global__ void token_gradient_kernel(std::size_t rows, std::size_t width,
                                      const std::int32_t* tokens, const std::int32_t* order,
                                      const T* dy, float* partials, float* dtoken) {
  __shared__ std::int32_t row[kSliceRows + 2];    // of the slice and its neighbours
  __shared__ std::int32_t token[kSliceRows + 2];  // -1: no row
  static_assert(kSliceRows + 2 <= kThreads);
  const std::size_t begin = blockIdx.x * kSliceRows;
  const std::size_t count = rows - begin < kSliceRows ? rows - begin : kSliceRows;
  if (threadIdx.x < kSliceRows + 2) {
    const std::size_t next = begin + threadIdx.x;  // one after the place of this thread
    const bool has_row = next > 0 && next <= rows;
    row[threadIdx.x] = has_row ? order[next - 1] : 0;
    token[threadIdx.x] = has_row ? tokens[row[threadIdx.x]] : -1;
  }
  __syncthreads();
  const std::size_t column = static_cast<std::size_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (column >= width) return;
  float* const partial = partials + blockIdx.x * 2 * width + column;
  bool begins_before = token[0] == token[1];
  float sum = 0.0f;
  for (std::size_t i = 1; i <= count; ++i) {
    sum += widen(dy[static_cast<std::size_t>(row[i]) * width + column]);
    const bool goes_on = token[i + 1] == token[i];
    if (goes_on && i < count) continue;
    if (begins_before) {
      partial[0] = sum;
    } else if (goes_on) {
      partial[width] = sum;
    } else {
      dtoken[static_cast<std::size_t>(token[i]) * width + column] += sum;
    }
    begins_before = false;
    sum = 0.0f;
  }
}

// Block (slice, columns) adds up the partial sums of the token that begins in its slice and has
// rows in later slices, if there is one.
__global__ void join_slices_kernel(std::size_t rows, std::size_t width, const std::int32_t* tokens,
                                   const std::int32_t* order, const float* partials,
                                   float* dtoken) {
  const std::size_t column = static_cast<std::size_t>(blockIdx.y) * kThreads + threadIdx.x;
  const std::size_t begin = blockIdx.x * kSliceRows;
  std::size_t next = begin + kSliceRows;
  if (column >= width || next >= rows) return;
  const std::int32_t token = tokens[order[next - 1]];
  if (begin > 0 && tokens[order[begin - 1]] == token) return;
  if (tokens[order[next]] != token) return;
  float sum = partials[(blockIdx.x * 2 + 1) * width + column];
  for (; next < rows && tokens[order[next]] == token; next += kSliceRows) {
    sum += partials[next / kSliceRows * 2 * width + column];
  }
  dtoken[static_cast<std::size_t>(token) * width + column] += sum;
}

}  // namespace

void embed(NativeStream stream, const EmbeddingForward& s) {
  visit_packed(s.dtype, s.width, [&](auto element, auto pack) {
    using T = decltype(element);
    embed_kernel<T, decltype(pack)::value>
        <<<static_cast<unsigned>(s.rows), kThreads, 0, native(stream)>>>(
            s.length, s.width, s.tokens, s.token, s.position, as<T>(s.y));
  });
  check_launch("embed");
}

void embed_backward(NativeStream stream, const EmbeddingBackward& s) {
  const std::size_t positions = s.length * s.width;
  const auto position_blocks = static_cast<unsigned>(ceil_div<std::size_t>(positions, kThreads));
  const dim3 token_blocks(static_cast<unsigned>(token_slices(s.rows)),
                          static_cast<unsigned>(ceil_div<std::size_t>(s.width, kThreads)));
  visit_element(s.dtype, [&](auto element) {
    using T = decltype(element);
    position_gradient_kernel<<<position_blocks, kThreads, 0, native(stream)>>>(
        s.rows / s.length, positions, as<T>(s.dy), s.position_mode == Into::kAdd, s.dposition);
    token_gradient_kernel<<<token_blocks, kThreads, 0, native(stream)>>>(
        s.rows, s.width, s.tokens, s.order, as<T>(s.dy), s.partials, s.dtoken);
  });
  join_slices_kernel<<<token_blocks, kThreads, 0, native(stream)>>>(s.rows, s.width, s.tokens,
                                                                    s.order, s.partials, s.dtoken);
  check_launch("embed_backward");
}

}  // namespace kolo::trainer::cuda
