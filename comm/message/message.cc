#include "comm/message/message.h"

#include <fmt/format.h>

namespace kolo {

std::string Message::describe() const {
  const std::string who = peer == kAnyRank ? "any rank" : fmt::format("rank {}", peer);
  return kind == Kind::kSend ? fmt::format("a send to {} with tag {}", who, tag)
                             : fmt::format("a receive from {} with tag {}", who, tag);
}

}  // namespace kolo
