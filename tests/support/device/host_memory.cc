#include "tests/support/device/host_memory.h"

#include <algorithm>
#include <cstring>
#include <new>

#include <fmt/format.h>

#include "comm/base/error.h"

namespace kolo {
namespace {

constexpr std::align_val_t kAlignment{256};

}  // namespace

DeviceMemory allocate_poisoned(std::size_t bytes, MemoryKind kind, std::string_view device) {
  void* data = nullptr;
  try {
    data = ::operator new(std::max<std::size_t>(bytes, 1), kAlignment);
  } catch (const std::bad_alloc&) {
    throw KoloError(
        {.code = ErrorCode::kResources,
         .what = fmt::format("{}: no {} bytes of {} memory", device, bytes, to_string(kind))});
  }
  const auto poison = [bytes](void* memory) {
    std::memset(memory, std::to_integer<int>(kPoison), bytes);
  };
  poison(data);
  return DeviceMemory(data, bytes, kind, [poison](void* memory) {
    poison(memory);
    ::operator delete(memory, kAlignment);
  });
}

}  // namespace kolo
