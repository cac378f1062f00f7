#include "tests/support/cuda_emulator/shared_memory.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "tests/support/cuda_emulator/block.h"

namespace kolo::emulator {
namespace {

// AddressSanitizer detects more mistakes than a margin does, but only without a margin.
#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kMargin = 0;
#else
constexpr std::size_t kMargin = 64;
#endif
constexpr std::byte kUnwritten{0xff};

}  // namespace

SharedMemory::SharedMemory(std::size_t dynamic_bytes) { add(nullptr, dynamic_bytes); }

void* SharedMemory::variable(const void* key, std::size_t bytes) {
  for (const Variable& variable : variables_) {
    if (variable.key == key) return variable.memory.get();
  }
  return add(key, bytes);
}

void* SharedMemory::add(const void* key, std::size_t bytes) {
  bytes_ += bytes;
  if (bytes_ > kMostBytes) {
    throw Fault("a block's shared memory of " + std::to_string(bytes_) + " bytes is too large");
  }
  variables_.push_back({.key = key,
                        .bytes = bytes,
                        .memory = std::make_unique_for_overwrite<std::byte[]>(bytes + kMargin)});
  std::byte* const memory = variables_.back().memory.get();
  std::fill_n(memory, bytes + kMargin, kUnwritten);
  return memory;
}

void SharedMemory::check_margins() const {
  for (const Variable& variable : variables_) {
    const std::byte* const margin = variable.memory.get() + variable.bytes;
    if (std::any_of(margin, margin + kMargin, [](std::byte b) { return b != kUnwritten; })) {
      throw Fault("a kernel wrote behind a shared variable of " + std::to_string(variable.bytes) +
                  " bytes");
    }
  }
}

}  // namespace kolo::emulator
