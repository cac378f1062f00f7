#include "runtime/calls/stand_in_memory.h"

#include <algorithm>

#include "comm/kernels/neutral.h"

namespace kolo {
namespace {

/// A multiple of the size of every dtype.
constexpr std::size_t kPatternBytes = std::size_t{1} << 20;

}  // namespace

StandInMemory::Block::Block(Device& device, std::size_t bytes)
    : memory_(device.allocate(bytes, MemoryKind::kDevice)),
      pattern_(device.allocate(std::min(bytes, kPatternBytes), MemoryKind::kPinned)),
      filled_(device.make_event()) {}

void StandInMemory::Block::fill(Stream& up, std::size_t count, DType dtype, ReduceOp op) {
  const std::size_t at_once = std::min(count, pattern_.bytes() / size_of(dtype));
  const BufferView pattern{pattern_.data(), at_once, dtype, MemoryKind::kPinned};
  BufferView host = pattern;
  host.memory = MemoryKind::kHost;
  fill_neutral(host, op);
  for (std::size_t first = 0; first < count; first += at_once) {
    BufferView source = pattern;
    source.count = std::min(at_once, count - first);
    BufferView target = source;
    target.data = data() + first * size_of(dtype);
    target.memory = MemoryKind::kDevice;
    up.copy(target, source);
  }
  up.record(*filled_);
}

std::shared_ptr<StandInMemory::Block> StandInMemory::take(std::size_t bytes) {
  std::shared_ptr<Block>* best = nullptr;
  for (std::shared_ptr<Block>& block : blocks_) {
    const bool is_free = block.use_count() == 1 && block->bytes() >= bytes;
    if (is_free && (best == nullptr || block->bytes() < (*best)->bytes())) best = &block;
  }
  if (best != nullptr) return *best;
  blocks_.push_back(std::make_shared<Block>(copies_.device(), bytes));
  return blocks_.back();
}

}  // namespace kolo
