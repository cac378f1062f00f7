#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "comm/base/buffer_view.h"
#include "runtime/calls/operation.h"

namespace kolo::test {

/// Returns the tensor list of an in-place operation on one tensor.
inline std::vector<TensorBuffers> in_place(const BufferView& buffer) {
  return {{.result = buffer.data, .count = buffer.count}};
}

/// Returns an operation that sums one tensor in place.
inline Operation all_reduce(std::string name, const BufferView& buffer) {
  return {.kind = OperationKind::kAllReduce, .name = std::move(name), .tensors = in_place(buffer)};
}

/// One rank that calls an operation.
struct Caller {
  OperationKind kind = OperationKind::kAllReduce;
  int rank = 0;
  int ranks = 1;

  /// Returns the number of elements of the rank's input, or of its result if `of_result`. Each part
  /// has `count` elements; if `counts` is not empty, it gives the elements of each part.
  std::size_t elements(std::size_t count, PartCounts counts, bool of_result) const {
    const auto n = static_cast<std::size_t>(ranks), me = static_cast<std::size_t>(rank);
    const bool has_all = of_result ? gives_parts(kind) : takes_parts(kind);
    if (counts.empty()) return has_all ? count * n : count;
    if (!has_pairs(kind)) {
      return has_all ? std::accumulate(counts.begin(), counts.end(), std::size_t{0}) : counts[me];
    }
    std::size_t sum = 0;
    for (std::size_t peer = 0; peer < n; ++peer) {
      sum += of_result ? counts[peer * n + me] : counts[me * n + peer];
    }
    return sum;
  }

  /// Returns a tensor with these parts. `input` and `result` must be long enough. In an in-place
  /// gather or scatter, a null buffer has no elements.
  Tensor tensor(std::size_t count, PartCounts counts, const void* input, void* result, DType dtype,
                bool in_place = false, MemoryKind memory = MemoryKind::kHost) const {
    const std::size_t gives = elements(count, counts, false), gets = elements(count, counts, true);
    if (in_place && !is_up_to_root(kind)) {
      return {BufferView(result, std::max(gives, gets), dtype, memory), counts};
    }
    const ConstBuffer in{input, input == nullptr ? 0 : gives, dtype, memory};
    return {in, BufferView(result, result == nullptr ? 0 : gets, dtype, memory), counts};
  }
};

}  // namespace kolo::test
