#include "comm/device/kernels/kernels.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "comm/base/visit_dtype.h"
#include "comm/device/kernels/element.h"
#include "comm/kernels/reduce_kernels.h"

namespace kolo {
void find_non_finite_on_host(DType dtype, const void* data, std::size_t count,
                             std::uint32_t* non_finite) {
  const bool bad = visit_dtype(dtype, [&]<typename T>(std::type_identity<T>) {
    const T* const values = static_cast<const T*>(data);
    return std::any_of(values, values + count, [](T value) { return element::non_finite(value); });
  });
  // Work on several streams may set the same flag.
  if (bad) std::atomic_ref(*non_finite).store(1, std::memory_order_relaxed);
}

void subtract_pairs_on_host(std::span<const std::int64_t> indices, const float* values,
                            float* residual, float* velocity) {
  for (std::size_t j = 0; j < indices.size(); ++j) {
    residual[indices[j]] -= values[j];
    if (velocity != nullptr) velocity[indices[j]] = 0.0f;
  }
}

void quantise_on_host(const Quantisation& task) {
  if (*task.non_finite != 0) return;
  codes::visit(task.kind, [&]<typename Code>(std::type_identity<Code>) {
    for (const CodedBlock& block : std::span(task.blocks, task.block_count)) {
      float* const values = task.values + block.first;
      std::uint8_t* const to = task.out + block.offset;
      const std::uint32_t header = Code::header(values, block.count);
      if (Code::kHeader > 0) to[0] = static_cast<std::uint8_t>(header);
      const Code code(header, task.threshold);
      const codes::Dither dither(task.seed, block.element);
      for (std::size_t j = Code::kHeader; j < codes::bytes<Code>(block.count); ++j) {
        to[j] = static_cast<std::uint8_t>(
            codes::take(code, values, block.count, j - Code::kHeader, dither));
      }
    }
  });
}

void copy_batched_on_host(const BatchedCopy& copy) {
  const bool packs = copy.direction == CopyDirection::kPack;
  const DType from = packs ? copy.tensor_dtype : copy.bucket_dtype;
  const DType to = packs ? copy.bucket_dtype : copy.tensor_dtype;
  for (const CopyChunk& chunk : copy.chunks) {
    void* const place =
        static_cast<std::byte*>(copy.bucket) + chunk.offset * size_of(copy.bucket_dtype);
    if (chunk.tensor == nullptr) {
      if (packs) std::memset(place, 0, chunk.count * size_of(to));
      continue;
    }
    void* const target = packs ? place : chunk.tensor;
    convert(to, target, from, packs ? chunk.tensor : place, chunk.count, copy.scale);
    if (copy.non_finite != nullptr) {
      find_non_finite_on_host(to, target, chunk.count, copy.non_finite);
    }
  }
}

}  // namespace kolo
