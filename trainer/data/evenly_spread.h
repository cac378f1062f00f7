#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "trainer/data/dataset.h"

namespace kolo::trainer {

/// Some of the samples of another data set, at equal distances.
class EvenlySpread final : public Dataset {
 public:
  /// `all` outlives it. Before: count <= all.size().
  EvenlySpread(const Dataset& all, std::size_t count) : all_(all), count_(count) {}

  std::size_t size() const override { return count_; }
  const SampleFormat& format() const override { return all_.format(); }
  void copy(std::size_t index, std::uint64_t epoch, std::span<const TensorSlot> inputs,
            std::span<const TensorSlot> targets) const override {
    all_.copy(index * all_.size() / count_, epoch, inputs, targets);
  }

 private:
  const Dataset& all_;
  std::size_t count_;
};

}  // namespace kolo::trainer
