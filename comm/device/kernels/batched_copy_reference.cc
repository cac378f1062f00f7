#include "comm/device/kernels/kernels.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "comm/base/visit_dtype.h"
#include "comm/device/kernels/element.h"
#include "comm/kernels/reduce_kernels.h"

namespace kolo {
namespace {

bool any_non_finite(DType dtype, const void* data, std::size_t count) {
  return visit_dtype(dtype, [&]<typename T>(std::type_identity<T>) {
    const T* const values = static_cast<const T*>(data);
    return std::any_of(values, values + count, [](T value) { return element::non_finite(value); });
  });
}

}  // namespace

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
    if (copy.non_finite != nullptr && any_non_finite(to, target, chunk.count)) {
      // Copies on several streams may set the same flag.
      std::atomic_ref(*copy.non_finite).store(1, std::memory_order_relaxed);
    }
  }
}

}  // namespace kolo
