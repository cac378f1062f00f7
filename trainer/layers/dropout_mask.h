#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "trainer/layers/layer.h"

namespace kolo::trainer {

/// Which elements drop out at random in a training pass. It depends on seed, layer, epoch and the
/// sample's place in the epoch alone, so it is the same whatever the batch and the number of ranks.
class DropoutMask {
 public:
  struct Options {
    float share = 0.0f;  ///< 0 to below 1.
    std::uint64_t seed = 0;
    std::uint64_t layer = 0;  ///< Its number among those of one model.
  };

  explicit DropoutMask(const Options& options) : options_(options) {}

  /// Begins a pass. Returns whether anything drops out in it.
  bool begin(const Pass& pass);
  /// Whether anything drops out in this pass.
  bool is_active() const { return is_active_; }

  /// Factors of elements of a sample of the batch: 0, or 1 / (1 - share) where they are kept. A
  /// sample has any number of parts, each with numbers of its own.
  void fill(std::size_t sample, std::uint64_t part, std::span<float> factors) const;

 private:
  Options options_;
  bool is_active_ = false;
  std::uint64_t epoch_key_ = 0;
  std::uint64_t first_position_ = 0;
};

}  // namespace kolo::trainer
