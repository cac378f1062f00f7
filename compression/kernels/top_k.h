#pragma once

#include <cstddef>
#include <cstdint>

namespace kolo {

/// Selects the k largest of |residual + gradient| and removes them from the residual.
///
/// Shape:  residual and gradient are [count] float32; indices and values are [k], k <= count. They
///         do not overlap.
/// After:  residual[i] is 0 if i was selected, else residual[i] + gradient[i]. `indices` ascend;
///         values[j] is the sum at indices[j].
/// Order:  exact; of equal magnitudes the lower index wins, so that the result is unique. NaN is
///         above infinity, so that it is sent and not lost; it comes out as the quiet NaN with
///         positive sign and empty payload.
struct TopK {
  float* residual = nullptr;
  const float* gradient = nullptr;
  std::size_t count = 0;
  std::size_t k = 0;
  std::uint32_t* indices = nullptr;
  float* values = nullptr;
};

inline constexpr std::size_t kMostTopKElements = std::size_t{1} << 31;

/// The implementation on the processor; defines every bit. Threads: pure; any. Errors: UsageError
/// if k > count or count >= kMostTopKElements. Cost: one pass that adds, three that count digits,
/// one that selects.
void top_k(const TopK& task);

/// Checks that every implementation of top-k makes. Errors: UsageError.
void check_top_k(const TopK& task);

}  // namespace kolo
