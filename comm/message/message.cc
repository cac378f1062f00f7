#include "comm/message/message.h"

#include <fmt/format.h>

namespace kolo {

std::string Message::describe() const {
  const std::string who = peer == kAnyRank ? "any rank" : fmt::format("rank {}", peer);
  return kind == Kind::kSend ? fmt::format("a send to {} with tag {}", who, tag)
                             : fmt::format("a receive from {} with tag {}", who, tag);
}

void Message::set_parts(std::span<const BufferView> all) {
  const bool is_grouped = all.size() > 1;
  buffer = is_grouped ? BufferView{} : all.front();
  tensors.assign(all.begin(), is_grouped ? all.end() : all.begin());
}

std::span<const BufferView> Message::parts() const {
  if (tensors.empty()) return {&buffer, 1};
  return tensors;
}

std::size_t Message::bytes() const {
  std::size_t total = 0;
  for (const BufferView& part : parts()) total += part.bytes();
  return total;
}

}  // namespace kolo
