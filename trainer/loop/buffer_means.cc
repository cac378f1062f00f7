#include "trainer/loop/buffer_means.h"

#include "trainer/checkpoint/stored_weights.h"

namespace kolo::trainer {

void BufferMeans::begin() {
  own_ = all();
  if (own_.empty()) return;
  // One exchange for all: they are small and many.
  std::vector<float> means = own_;
  runtime_.all_reduce("buffers", {means.data(), means.size(), DType::kFloat32}, ReduceOp::kAverage);
  set(means);
}

void BufferMeans::visit_state(StateVisitor& visitor) {
  std::deque<Buffer>& buffers = parameters_.buffers();
  if (!visitor.is_restoring()) begin();
  for (Buffer& buffer : buffers) {
    visitor.shared(kBuffers + buffer.name, buffer.value.shape(), buffer.value.span());
  }
  if (!visitor.is_restoring()) end();
  if (visitor.has_other_ranks()) return;
  for (Buffer& buffer : buffers) {
    visitor.own(kBuffers + buffer.name, buffer.value.shape(), buffer.value.span());
  }
}

std::vector<float> BufferMeans::all() const {
  std::vector<float> values;
  for (const Buffer& buffer : parameters_.buffers()) {
    values.insert(values.end(), buffer.value.span().begin(), buffer.value.span().end());
  }
  return values;
}

void BufferMeans::set(std::span<const float> values) {
  for (Buffer& buffer : parameters_.buffers()) {
    buffer.value.assign(values.first(buffer.value.size()));
    values = values.subspan(buffer.value.size());
  }
}

}  // namespace kolo::trainer
