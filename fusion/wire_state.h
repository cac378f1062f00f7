#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "fusion/wire_scale.h"

namespace kolo {

/// One tensor on its way over a 16-bit wire.
struct WireTensor {
  WireScale scale;
  WireReport heard = {};         ///< In this step, so far.
  std::size_t unpacked = 0;      ///< Elements, with the lanes.
  bool told_too_large = false;   ///< Of the last step, on this rank.
  bool told_too_small = false;   ///< The same.
  bool is_too_large = false;     ///< Some value, on this rank.
  bool may_be_too_small = true;  ///< The last result was zero, so the two that follow are kept.
  bool has_values = false;       ///< Some are not zero on this rank,
  bool sends_values = false;     ///< and on the wire neither.
};

/// What of it outlives a step, for a checkpoint.
struct WireMemory {
  WireScale::Memory scale = {};
  bool told_too_large = false;
  bool told_too_small = false;
  bool may_be_too_small = true;
  friend bool operator==(const WireMemory&, const WireMemory&) = default;
};

/// What a set of tensors carries from step to step, whatever the buckets they travel in: plans may
/// change between two steps.
///
/// Threads: the executor's, but for `too_large`, and between steps.
class WireState {
 public:
  WireState(std::size_t tensors, int ranks)
      : tensors_(tensors, WireTensor{.scale = WireScale(ranks)}) {}

  WireTensor& tensor(std::size_t index) { return tensors_.at(index); }

  WireMemory memory(std::size_t index) const {
    const WireTensor& tensor = tensors_.at(index);
    return {.scale = tensor.scale.memory(),
            .told_too_large = tensor.told_too_large,
            .told_too_small = tensor.told_too_small,
            .may_be_too_small = tensor.may_be_too_small};
  }
  /// Before: as `WireScale::resume`.
  void resume(std::size_t index, const WireMemory& memory) {
    WireTensor& tensor = tensors_.at(index);
    tensor.scale.resume(memory.scale);
    tensor.told_too_large = memory.told_too_large;
    tensor.told_too_small = memory.told_too_small;
    tensor.may_be_too_small = memory.may_be_too_small;
  }

  /// Returns whether these are the first ones.
  bool add_too_large(std::size_t count) {
    return too_large_.fetch_add(count, std::memory_order_relaxed) == 0;
  }
  /// Values of this rank, over all steps, that the wire could not hold. Threads: any.
  std::uint64_t too_large() const { return too_large_.load(std::memory_order_relaxed); }

 private:
  std::vector<WireTensor> tensors_;
  std::atomic<std::uint64_t> too_large_{0};
};

}  // namespace kolo
