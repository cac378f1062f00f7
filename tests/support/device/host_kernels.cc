#include "tests/support/device/host_kernels.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "comm/device/kernels/batched_copy_reference.h"
#include "comm/kernels/reduce_kernels.h"
#include "tests/support/device/host_stream.h"

namespace kolo {

void HostKernels::copy_batched(Stream& stream, const BatchedCopy& copy) {
  as_host(stream).enqueue([copy] {
    copy_batched_on_host(copy);
    return true;
  });
}

void HostKernels::reduce(Stream& stream, DType dtype, ReduceOp op, void* target,
                         std::span<const void* const> sources, std::size_t count, double scale) {
  check_reduce(sources.size());
  std::array<const void*, kMostReduceSources> kept;
  std::copy(sources.begin(), sources.end(), kept.begin());
  as_host(stream).enqueue([=, source_count = sources.size()] {
    kolo::reduce(dtype, op, target, std::span(kept).first(source_count), count, scale);
    return true;
  });
}

void HostKernels::sum_rows(Stream& stream, const RowGroups& groups, const void* rows,
                           std::size_t width, DType dtype, double scale, void* sums) {
  as_host(stream).enqueue([=] {
    kolo::sum_rows(groups, static_cast<const std::byte*>(rows), width, dtype, scale,
                   static_cast<std::byte*>(sums));
    return true;
  });
}

void HostKernels::spread_rows(Stream& stream, std::span<const std::int64_t> indices,
                              const void* rows, std::size_t row_bytes, void* table,
                              std::size_t height) {
  as_host(stream).enqueue([=] {
    if (height * row_bytes > 0) std::memset(table, 0, height * row_bytes);
    kolo::spread_rows(indices, static_cast<const std::byte*>(rows), row_bytes,
                      static_cast<std::byte*>(table));
    return true;
  });
}

}  // namespace kolo
