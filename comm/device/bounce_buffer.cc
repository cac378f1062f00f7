#include "comm/device/bounce_buffer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "comm/base/check.h"
#include "comm/base/log.h"

namespace kolo {

void CopyStreams::keep(DeviceMemory memory, std::unique_ptr<Event> copied) {
  std::erase_if(kept_, [](const Kept& kept) { return kept.copied->done(); });
  kept_.push_back({std::move(memory), std::move(copied)});
}

namespace {

BufferView on_device(const BounceBuffer::Copy& copy) {
  return {copy.device, copy.bytes, DType::kUInt8, MemoryKind::kDevice};
}

}  // namespace

BounceBuffer::BounceBuffer(CopyStreams& streams, std::size_t bytes)
    : streams_(streams),
      memory_(streams.device().allocate(bytes, MemoryKind::kPinned)),
      copied_(streams.device().make_event()) {
  streams_.down();
  streams_.up();
}

BounceBuffer::~BounceBuffer() {
  if (!is_copying()) return;
  try {
    streams_.keep(std::move(memory_), std::move(copied_));
  } catch (const std::exception& e) {
    log::error(std::string("a copy of a device outlives its memory: ") + e.what());
  }
}

BufferView BounceBuffer::here(const Copy& copy) const {
  return {memory_.data() + copy.offset, copy.bytes, DType::kUInt8, MemoryKind::kPinned};
}

void BounceBuffer::begin(std::span<const Copy> down, std::span<const Copy> up, const Event* ready) {
  ensure(state_ == State::kIdle, "this bounce buffer is in use already");
  up_.assign(up.begin(), up.end());
  state_ = State::kFull;
  if (down.empty() && ready == nullptr) return;
  Stream& stream = streams_.down();
  if (ready != nullptr) stream.wait(*ready);
  for (const Copy& copy : down) stream.copy(here(copy), on_device(copy));
  stream.record(*copied_);
  state_ = State::kFilling;
}

bool BounceBuffer::is_full() {
  if (state_ == State::kFilling && is_copied()) state_ = State::kFull;
  return state_ == State::kFull;
}

bool BounceBuffer::drain() { return drain_first(std::numeric_limits<std::size_t>::max()); }

bool BounceBuffer::drain_first(std::size_t bytes) {
  if (is_full()) {
    Stream& stream = streams_.up();
    bool any = false;
    for (Copy copy : up_) {
      if (copy.offset >= bytes) continue;
      copy.bytes = std::min(copy.bytes, bytes - copy.offset);
      stream.copy(on_device(copy), here(copy));
      any = true;
    }
    if (any) stream.record(*copied_);
    state_ = any ? State::kDraining : State::kIdle;
  }
  if (state_ == State::kDraining && is_copied()) state_ = State::kIdle;
  return state_ == State::kIdle;
}

}  // namespace kolo
