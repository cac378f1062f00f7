#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace kolo {

/// What rank 0 has decided about the sizes of a gradient set, as one word of a vote. Units: sizes
/// are bytes, of which whole KiB travel.
struct SizeDecision {
  std::size_t fusion_bytes = 0;  ///< 0: as options and cost model say.
  std::size_t chunk_bytes = 0;   ///< The same.
  /// The next decision comes at the end of this many iterations from now; 0: this is the last.
  std::size_t iterations = 0;

  friend bool operator==(const SizeDecision&, const SizeDecision&) = default;
};

///   bits  63..40  39..16  15..0
///         fusion  chunk   iterations
constexpr std::uint64_t to_word(const SizeDecision& decision) {
  const auto kib = [](std::size_t bytes) {
    return std::uint64_t{std::min<std::size_t>(bytes >> 10, (std::size_t{1} << 24) - 1)};
  };
  return kib(decision.fusion_bytes) << 40 | kib(decision.chunk_bytes) << 16 |
         std::min<std::uint64_t>(decision.iterations, 0xFFFF);
}

constexpr SizeDecision size_decision(std::uint64_t word) {
  return {.fusion_bytes = static_cast<std::size_t>(word >> 40) << 10,
          .chunk_bytes = static_cast<std::size_t>(word >> 16 & 0xFFFFFF) << 10,
          .iterations = static_cast<std::size_t>(word & 0xFFFF)};
}

}  // namespace kolo
