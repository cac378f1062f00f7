#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include "comm/base/buffer_view.h"
#include "comm/base/dtype.h"

namespace kolo::bench {

/// Place of the memory of a case. Memory outside the arena belongs to the caller.
enum class Home { kArena, kUser, kDevice, kDeviceUser };

inline constexpr std::array kAllHomes = {Home::kArena, Home::kUser, Home::kDevice,
                                         Home::kDeviceUser};

constexpr std::string_view to_string(Home home) {
  switch (home) {
    case Home::kArena:
      return "arena";
    case Home::kUser:
      return "user";
    case Home::kDevice:
      return "device";
    case Home::kDeviceUser:
      break;
  }
  return "device-user";
}

constexpr bool in_arena(Home home) { return home == Home::kArena || home == Home::kDevice; }

constexpr MemoryKind memory_kind(Home home) {
  return home == Home::kArena || home == Home::kUser ? MemoryKind::kHost : MemoryKind::kDevice;
}

/// The home with the same kind of memory for a system without an arena.
constexpr Home without_arena(Home home) {
  return memory_kind(home) == MemoryKind::kHost ? Home::kUser : Home::kDeviceUser;
}

/// The case that one row measures.
struct AllReduceCase {
  std::size_t bytes = 0;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::optional<DType> wire = std::nullopt;
  Home home = Home::kArena;
  bool in_place = true;  ///< The sum replaces the contribution; else it goes to a second buffer.

  std::size_t count() const { return bytes / size_of(dtype); }
};

}  // namespace kolo::bench
