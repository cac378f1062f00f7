#include "trainer/cuda/core/loss.h"

#include <cuda_runtime_api.h>

#include <cstring>

#include "comm/device/cuda_error.h"
#include "trainer/cuda/compute/wait.h"

namespace kolo::trainer::cuda {
namespace {

BufferView bytes_of(const DeviceMemory& memory) {
  return {memory.data(), sizeof(LossTotals), DType::kUInt8, memory.kind()};
}

}  // namespace

Loss::Loss(kolo::Device& device, Stream& stream, Context& context, const BatchStaging& batch,
           const Shape& shape)
    : stream_(stream),
      context_(context),
      batch_(batch),
      shape_(shape),
      gradient_(context.activations(shape.rows * shape.classes)),
      row_results_(context.floats(2 * shape.rows)),
      totals_(device.allocate(sizeof(LossTotals), MemoryKind::kDevice)),
      pinned_totals_(device.allocate(sizeof(LossTotals), MemoryKind::kPinned)),
      copied_(device.make_event()) {
  clear_totals();
}

void Loss::enqueue(const float* logits, void* gradient) {
  cross_entropy(context_.stream(), {.dtype = context_.dtype(),
                                    .rows = shape_.rows,
                                    .classes = shape_.classes,
                                    .logits = logits,
                                    .targets = batch_.targets(),
                                    .header = batch_.header(),
                                    .gradient = gradient,
                                    .row_results = floats_of(row_results_),
                                    .totals = reinterpret_cast<LossTotals*>(totals_.data())});
}

LossTotals Loss::take() {
  stream_.copy(bytes_of(pinned_totals_), bytes_of(totals_));
  clear_totals();
  stream_.record(*copied_);
  wait_for(*copied_);
  LossTotals totals;
  std::memcpy(&totals, pinned_totals_.data(), sizeof(totals));
  return totals;
}

void Loss::clear_totals() {
  require_cuda(cudaMemsetAsync(totals_.data(), 0, sizeof(LossTotals),
                               static_cast<cudaStream_t>(stream_.native())),
               "cudaMemsetAsync");
}

}  // namespace kolo::trainer::cuda
