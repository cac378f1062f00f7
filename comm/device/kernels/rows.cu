#include "comm/device/kernels/kernels.h"

#include <cstdint>
#include <type_traits>

#include "comm/base/visit_dtype.h"
#include "comm/device/cuda_error.h"
#include "comm/device/kernels/element.h"
#include "comm/device/kernels/group.cuh"
#include "comm/device/kernels/launch.cuh"
#include "comm/kernels/combine.h"

namespace kolo {
namespace {

constexpr int kThreads = 256;
constexpr int kRowsInFlight = 4;  // per thread, with their positions

/// Iterates over the words of a matrix that one thread handles. The threads of a launch take words
/// round-robin, so that neighbouring threads access neighbouring bytes even if rows are short.
class Walk {
 public:
  __device__ explicit Walk(std::size_t words_per_row) : words_(words_per_row) {
    const std::size_t thread = blockIdx.x * std::size_t{kThreads} + threadIdx.x;
    const std::size_t threads = gridDim.x * std::size_t{kThreads};
    row = thread / words_;
    word = thread % words_;
    row_step_ = threads / words_;
    word_step_ = threads % words_;
  }

  __device__ void next() {
    row += row_step_;
    word += word_step_;
    if (word < words_) return;
    word -= words_;
    ++row;
  }

  std::size_t row, word;

 private:
  std::size_t words_, row_step_, word_step_;
};

/// RowGroups in memory that the device can read.
struct Lists {
  const std::size_t* positions;  // if null, group i is row i
  const std::size_t* ends;

  __device__ std::size_t end(std::size_t group) const {
    return positions == nullptr ? group + 1 : ends[group];
  }
  __device__ std::size_t row(std::size_t place) const {
    return positions == nullptr ? place : positions[place];
  }
};

template <typename T, int kGroup>
__device__ Group<T, kGroup> load_one(const T* from) {
  if constexpr (Group<T, kGroup>::kWide) {
    return load_wide<T, kGroup>(from);
  } else {
    return {{*from}};
  }
}

/// Sums kGroup elements of the rows whose positions are entries [begin, end) of the lists.
template <typename T, int kGroup>
__device__ Group<T, kGroup> sum_group(const Lists& lists, std::size_t begin, std::size_t end,
                                      const T* rows, std::size_t width,
                                      const element::ElementScaling<T>& scale) {
  using A = element::Accum<T>;
  std::size_t next[kRowsInFlight];
  A sums[kGroup];
#pragma unroll
  for (int r = 0; r < kRowsInFlight; ++r) {
    if (begin + r < end) next[r] = lists.row(begin + r);
  }
  for (std::size_t place = begin; place < end; place += kRowsInFlight) {
    Group<T, kGroup> in[kRowsInFlight];
#pragma unroll
    for (int r = 0; r < kRowsInFlight; ++r) {
      if (place + r < end) in[r] = load_one<T, kGroup>(rows + next[r] * width);
    }
    if (end - begin == 1 && scale.divisor == 1) return in[0];
#pragma unroll
    for (int r = 0; r < kRowsInFlight; ++r) {
      if (place + kRowsInFlight + r < end) next[r] = lists.row(place + kRowsInFlight + r);
    }
#pragma unroll
    for (int r = 0; r < kRowsInFlight; ++r) {
      if (place + r >= end) break;
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        const A value = element::widen<A>(in[r].values[i]);
        sums[i] = place + r == begin ? value : combine::Sum::apply(sums[i], value);
      }
    }
  }
  Group<T, kGroup> out;
#pragma unroll
  for (int i = 0; i < kGroup; ++i) out.values[i] = element::scaled<T>(sums[i], scale);
  return out;
}

template <typename T, int kGroup>
__global__ void __launch_bounds__(kThreads)
    sum_groups(Lists lists, std::size_t count, const T* rows, std::size_t width,
               element::ElementScaling<T> scale, T* sums) {
  for (Walk at(width / kGroup); at.row < count; at.next()) {
    const std::size_t begin = at.row == 0 ? 0 : lists.end(at.row - 1);
    const std::size_t column = at.word * kGroup;
    store(sums + at.row * width + column,
          sum_group<T, kGroup>(lists, begin, lists.end(at.row), rows + column, width, scale));
  }
}

template <typename Word>
__global__ void __launch_bounds__(kThreads)
    copy_rows(const std::int64_t* indices, std::size_t count, const Word* rows, std::size_t words,
              Word* table) {
  for (Walk at(words); at.row < count; at.next()) {
    const auto place = static_cast<std::size_t>(indices[at.row]);
    __stcg(table + place * words + at.word, __ldcg(rows + at.row * words + at.word));
  }
}

/// Bytes of the widest access that is aligned in every row of both matrices.
std::size_t widest(const void* a, const void* b, std::size_t row_bytes) {
  return access::widest(reinterpret_cast<std::uintptr_t>(a) | reinterpret_cast<std::uintptr_t>(b) |
                        row_bytes);
}

template <typename T, int kGroup = access::kBytes / sizeof(T)>
void launch_sums(std::size_t word_bytes, const Lists& lists, std::size_t count, const T* rows,
                 std::size_t width, const element::ElementScaling<T>& scale, T* sums,
                 cudaStream_t stream) {
  if constexpr (kGroup > 1) {
    constexpr std::size_t kBytes = Group<T, kGroup>::kBytes;
    if (word_bytes < kBytes) {
      return launch_sums<T, (kBytes > 4 ? kGroup / 2 : 1)>(word_bytes, lists, count, rows, width,
                                                           scale, sums, stream);
    }
  }
  gpu::launch("sums of rows", sum_groups<T, kGroup>, kThreads,
              access::ceil_divide(count * (width / kGroup), kThreads), stream, lists, count, rows,
              width, scale, sums);
}

template <typename Word, typename... Narrower>
void launch_copy(std::size_t word_bytes, Span<const std::int64_t> indices, const void* rows,
                 std::size_t row_bytes, void* table, cudaStream_t stream) {
  if constexpr (sizeof...(Narrower) > 0) {
    if (word_bytes < sizeof(Word)) {
      return launch_copy<Narrower...>(word_bytes, indices, rows, row_bytes, table, stream);
    }
  }
  const std::size_t words = row_bytes / sizeof(Word);
  gpu::launch("spread of rows", copy_rows<Word>, kThreads,
              access::ceil_divide(indices.size() * words, kThreads), stream, indices.data(),
              indices.size(), static_cast<const Word*>(rows), words, static_cast<Word*>(table));
}

void launch_words(std::size_t word_bytes, Span<const std::int64_t> indices, const void* rows,
                  std::size_t row_bytes, void* table, cudaStream_t stream) {
  launch_copy<uint4, uint2, std::uint32_t, std::uint16_t, std::uint8_t>(word_bytes, indices, rows,
                                                                        row_bytes, table, stream);
}

}  // namespace

void launch_row_sums(const RowGroups& groups, const void* rows, std::size_t width, DType dtype,
                     double scale, void* sums, void* cuda_stream) {
  const Lists lists = {groups.positions.empty() ? nullptr : groups.positions.data(),
                       groups.ends.data()};
  visit_dtype(dtype, [&]<typename T>(std::type_identity<T>) {
    launch_sums(widest(rows, sums, width * sizeof(T)), lists, groups.count,
                static_cast<const T*>(rows), width, element::ElementScaling<T>(scale),
                static_cast<T*>(sums), static_cast<cudaStream_t>(cuda_stream));
  });
}

void launch_row_spread(Span<const std::int64_t> indices, const void* rows, std::size_t row_bytes,
                       void* table, std::size_t height, void* cuda_stream) {
  const auto stream = static_cast<cudaStream_t>(cuda_stream);
  if (height * row_bytes == 0) return;
  require_cuda(cudaMemsetAsync(table, 0, height * row_bytes, stream), "cudaMemsetAsync");
  launch_words(widest(rows, table, row_bytes), indices, rows, row_bytes, table, stream);
}

void load_rows() {
  constexpr std::size_t kWidth = access::kBytes;
  alignas(kWidth) const char memory[kWidth + 1] = {};
  for (std::size_t bytes = 1; bytes <= kWidth; bytes *= 2) {  // of an access
    for (const DType dtype : kNumberDTypes) {
      if (bytes < size_of(dtype)) continue;
      launch_row_sums({}, memory + bytes, kWidth, dtype, 1, nullptr, nullptr);
    }
    launch_words(bytes, {}, nullptr, kWidth, nullptr, nullptr);
  }
}

void load_kernels() {
  load_batched_copy();
  load_reduce();
  load_rows();
  load_top_k();
  load_pairs();
  load_codes();
}

}  // namespace kolo
