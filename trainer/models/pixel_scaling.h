#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace kolo::trainer {

/// Converts pixel bytes to floats of mean 0 and deviation 1: y = (byte - mean) / deviation.
class PixelScaling {
 public:
  PixelScaling(double mean, double deviation) {
    for (std::size_t byte = 0; byte < table_.size(); ++byte) {
      table_[byte] = static_cast<float>((static_cast<double>(byte) - mean) / deviation);
    }
  }

  /// Before: equal sizes.
  void apply(std::span<const std::uint8_t> bytes, std::span<float> out) const {
    for (std::size_t i = 0; i < bytes.size(); ++i) out[i] = table_[bytes[i]];
  }

 private:
  std::array<float, 256> table_;
};

}  // namespace kolo::trainer
