#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "comm/base/half.h"
#include "runtime/api/kolo.h"

/// What the ranks of `job_program` contribute, and what becomes of it.
namespace kolo::test {

/// A sum that is not what it must be: as bad as a wrong answer can be.
struct WrongSum : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// FNV-1a over all bits of all results, in order.
class Digest {
 public:
  void add(const kolo::BufferView& view) {
    for (std::byte byte : view.as_bytes()) {
      state_ = (state_ ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3;
    }
  }
  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0xcbf29ce484222325;
};

/// Small whole numbers, so that sums are exact in every dtype, 16-bit ones included.
inline int whole(int rank, int round, std::size_t i) {
  return static_cast<int>((static_cast<std::size_t>(rank * 7 + round * 3) + i) % 17) - 8;
}

inline int sum_of_whole(int world_size, int round, std::size_t i) {
  int sum = 0;
  for (int rank = 0; rank < world_size; ++rank) sum += whole(rank, round, i);
  return sum;
}

/// Numbers between -1 and 1 whose sums are rounded, so that the order of summing shows in the bits.
inline float fraction(int rank, int round, std::size_t i) {
  std::uint64_t bits = static_cast<std::uint64_t>(rank) << 48 ^
                       static_cast<std::uint64_t>(round) << 40 ^ (i + 1) * 0x9e3779b97f4a7c15;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  return static_cast<float>(static_cast<std::int64_t>(bits) >> 40) / 8388608.0F;
}

/// Fills a view of floating-point or complex elements with such numbers.
inline void write_fractions(const BufferView& view, int rank, int round) {
  auto* at = static_cast<std::byte*>(view.data);
  const auto write = [&at](auto value) {
    std::memcpy(at, &value, sizeof(value));
    at += sizeof(value);
  };
  for (std::size_t i = 0; i < view.count; ++i) {
    const float value = fraction(rank, round, i);
    switch (view.dtype) {
      case DType::kFloat64:
        write(static_cast<double>(value) / 3);
        break;
      case DType::kFloat16:
        write(to_float16(value));
        break;
      case DType::kBFloat16:
        write(to_bfloat16(value));
        break;
      case DType::kComplex64:
        write(value);
        write(fraction(rank, round + 1, i));
        break;
      default:
        write(value);
    }
  }
}

}  // namespace kolo::test
