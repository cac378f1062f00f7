#include "runtime/message/message_calls.h"

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "fusion/overlap.h"

namespace kolo {

void MessageCalls::check_call(Message::Kind kind, const Buffers& tensors, int peer) const {
  const bool sends = kind == Message::Kind::kSend;
  const auto refuse = [&](const std::string& what) {
    throw UsageError((sends ? "send: " : "recv: ") + what);
  };
  if (tensors.empty()) refuse("there are no tensors");
  const MemoryKind memory = tensors.front().memory;
  if (memory == MemoryKind::kPinned) refuse("pinned memory is host memory; call it that");
  if (memory == MemoryKind::kDevice && device_ == nullptr) {
    refuse("device memory needs a device: set the option `device`, e.g. KOLO_DEVICE=cuda");
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& [data, count, dtype, kind_of_memory] = tensors[i];
    if (kind_of_memory != memory) {
      refuse(
          fmt::format("buffer {} is in {} memory and buffer 0 in {} memory; those of one "
                      "message are in memory of one kind",
                      i, to_string(kind_of_memory), to_string(memory)));
    }
    if (data == nullptr && count > 0) {
      refuse(tensors.size() == 1 ? "the buffer is null" : fmt::format("buffer {} is null", i));
    }
    if (memory != MemoryKind::kDevice) continue;
    const std::string problem = device_->problem_with(data, tensors[i].bytes());
    if (!problem.empty()) refuse(fmt::format("buffer {} is in {}", i, problem));
  }
  if (!sends && tensors.size() > 1) {
    std::vector<UsedMemory> used;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      used.push_back({.begin = tensors[i].data, .bytes = tensors[i].bytes(), .index = i});
    }
    if (const auto overlap = find_overlap(std::move(used))) {
      refuse(fmt::format("buffers {} and {} share memory; each tensor needs memory of its own",
                         overlap->first, overlap->second));
    }
  }
  if ((peer >= 0 && peer < world_size_) || (peer == kAnyRank && !sends)) return;
  refuse(fmt::format("the peer {} is not a rank{}", peer, sends ? "" : ", and not kAnyRank"));
}

std::shared_ptr<MessageCall> MessageCalls::make(Message::Kind kind, const Buffers& buffers,
                                                int peer, std::uint64_t tag,
                                                NativeStream stream) const {
  check_call(kind, buffers, peer);
  std::shared_ptr<MessageCall> call = pool_.take();
  call->kind = kind;
  call->peer = peer;
  call->tag = tag;
  call->set_parts(buffers);
  if (call->memory() == MemoryKind::kDevice) {
    std::shared_ptr<Event> ready = device_->make_event();
    device_->record(stream, *ready);
    call->ready = std::move(ready);
  }
  return call;
}

}  // namespace kolo
