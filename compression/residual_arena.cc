#include "compression/residual_arena.h"

#include <algorithm>

namespace kolo {

ResidualArena::ResidualArena(std::span<const std::size_t> counts) {
  constexpr std::size_t kUnit = kMemoryAlignment / sizeof(float);
  for (const std::size_t count : counts) {
    tensors_.push_back({.offset = floats_, .count = count});
    floats_ += (count + kUnit - 1) / kUnit * kUnit;
  }
  memory_ = allocate_aligned(bytes());
  std::fill_n(reinterpret_cast<float*>(memory_.get()), 2 * floats_, 0.0f);
}

std::span<float> ResidualArena::room(std::size_t tensor, std::size_t half) const {
  const Tensor& place = tensors_.at(tensor);
  return {reinterpret_cast<float*>(memory_.get()) + half * floats_ + place.offset, place.count};
}

}  // namespace kolo
