#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kolo::trainer {

/// Samples of equal shape by index, as bytes: pixels with a label, or text with its continuation.
///
/// Immutable. Threads: any.
class Dataset {
 public:
  virtual ~Dataset() = default;

  /// Number of samples.
  virtual std::size_t size() const = 0;
  virtual std::size_t input_bytes() const = 0;   ///< Per sample.
  virtual std::size_t target_bytes() const = 0;  ///< Per sample: rows of the loss.

  /// Before: index < size(); `input` and `target` have the sizes above.
  virtual void copy(std::size_t index, std::span<std::uint8_t> input,
                    std::span<std::uint8_t> target) const = 0;
};

}  // namespace kolo::trainer
