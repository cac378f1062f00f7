#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace kolo::trainer {

/// A stream of random numbers that depend only on seed, stream number and position. The n-th number
/// is a hash of its position, so streams may be read in any order, and the bits are equal on every
/// rank and with every standard library.
///
/// Source: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), used as a counter-based generator.
class Random {
 public:
  explicit Random(std::uint64_t seed, std::uint64_t stream = 0)
      : key_(mix(seed + kIncrement * mix(stream + 1))) {}

  std::uint64_t next() { return mix(key_ + kIncrement * ++position_); }

  /// The next number, uniform in [0, 1) and a multiple of 2^-24.
  float uniform() { return static_cast<float>(next() >> 40) * 0x1.0p-24f; }

  /// The next integer, uniform in [0, bound) without bias. Before: bound > 0.
  std::uint64_t below(std::uint64_t bound) {
    const std::uint64_t biased = (0 - bound) % bound;  // 2^64 mod bound
    std::uint64_t value = next();
    while (value < biased) value = next();
    return value % bound;
  }

 private:
  static constexpr std::uint64_t kIncrement = 0x9E3779B97F4A7C15u;

  static std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  std::uint64_t key_;
  std::uint64_t position_ = 0;
};

/// A random permutation of 0 … count-1 that depends only on `count`, `seed` and `stream`. Source:
/// Fisher and Yates, as in Knuth, TAOCP 2, 3.4.2, algorithm P.
inline std::vector<std::size_t> permutation(std::size_t count, std::uint64_t seed,
                                            std::uint64_t stream) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  Random random(seed, stream);
  for (std::size_t left = count; left > 1; --left) {
    std::swap(order[left - 1], order[random.below(left)]);
  }
  return order;
}

}  // namespace kolo::trainer
