#include "fusion/arena.h"

#include <algorithm>

#include <fmt/format.h>

#include "comm/base/check.h"

namespace kolo {
namespace {

constexpr std::size_t kPageBytes = 4096;

}  // namespace

ArenaAllocator::ArenaAllocator(std::size_t capacity_bytes, std::string_view user,
                               std::string_view option)
    : capacity_(capacity_bytes), user_(user), option_(option) {}

std::size_t ArenaAllocator::allocate(std::size_t bytes) {
  // Buckets get whole pages, so that committing the memory of one bucket does not commit another's.
  const std::size_t needed =
      std::max<std::size_t>(1, (bytes + kPageBytes - 1) / kPageBytes) * kPageBytes;
  std::size_t offset = 0;
  for (const auto& [begin, size] : used_) {
    if (begin - offset >= needed) break;
    offset = begin + size;
  }
  if (bytes > capacity_ || needed > capacity_ || offset > capacity_ - needed) {
    throw KoloError(
        {.code = ErrorCode::kResources,
         .what = fmt::format("the arena has no room for {} of {} bytes: {} of {} bytes are free; "
                             "raise {}",
                             user_, bytes, capacity_ - used(), capacity_, option_)});
  }
  used_.emplace(offset, needed);
  return offset;
}

std::size_t ArenaAllocator::used() const {
  std::size_t bytes = 0;
  for (const auto& [begin, size] : used_) bytes += size;
  return bytes;
}

void ArenaAllocator::release(std::size_t offset) {
  ensure(used_.erase(offset) == 1, "released arena memory that was not allocated");
}

}  // namespace kolo
