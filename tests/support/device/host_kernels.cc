#include "tests/support/device/host_kernels.h"

#include <algorithm>
#include <array>

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

}  // namespace kolo
