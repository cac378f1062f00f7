#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace kolo {

/// Payloads of planned length: 4-byte numbers (counts or scores) behind the length in use, which is
/// always the whole. Ranks add them up to agree on what is sent.

/// Bytes of a payload with this many numbers.
inline constexpr std::size_t number_payload_bytes(std::size_t numbers) {
  return sizeof(std::uint64_t) + numbers * sizeof(std::uint32_t);
}

/// The numbers of a payload, whose memory is aligned for `Number`.
template <typename Number>
std::span<Number> numbers_in(std::span<std::byte> payload) {
  static_assert(sizeof(Number) == sizeof(std::uint32_t));
  constexpr std::size_t kHeader = number_payload_bytes(0);
  return {reinterpret_cast<Number*>(payload.data() + kHeader),
          (payload.size() - kHeader) / sizeof(Number)};
}

/// Marks the whole payload as in use.
inline void use_all(std::span<std::byte> payload) {
  const std::uint64_t used = payload.size();
  std::memcpy(payload.data(), &used, sizeof(used));
}

}  // namespace kolo
