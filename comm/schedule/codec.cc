#include "comm/schedule/codec.h"

#include <cstdint>
#include <cstring>

namespace kolo {

std::size_t joined_bytes(std::size_t part_capacity) { return (part_capacity + 7) / 8 * 8; }

void join_payloads(Payloads parts, std::span<std::byte> whole) {
  std::size_t end = kJoinedHeaderBytes;
  for (const std::span<std::byte> part : parts) {
    const std::size_t used = used_payload_bytes(part);
    const std::size_t room = joined_bytes(used);
    ensure(end + room <= whole.size(), "joined payloads are longer than planned");
    std::memcpy(whole.data() + end, part.data(), used);
    std::memset(whole.data() + end + used, 0, room - used);
    end += room;
  }
  const std::uint64_t used = end;
  std::memcpy(whole.data(), &used, sizeof(used));
}

void part_payloads(std::span<const std::byte> whole, Payloads parts) {
  std::span<const std::byte> left =
      whole.first(used_payload_bytes(whole)).subspan(kJoinedHeaderBytes);
  for (const std::span<std::byte> part : parts) {
    const std::size_t used = used_payload_bytes(left);
    ensure(used <= part.size(), "a payload is longer than planned");
    std::memcpy(part.data(), left.data(), used);
    left = left.subspan(joined_bytes(used));
  }
  ensure(left.empty(), "joined payloads are more than planned");
}

}  // namespace kolo
