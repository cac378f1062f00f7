#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "fusion/wire_scale.h"

namespace kolo {

/// The state of one tensor on a 16-bit wire.
struct WireTensor {
  WireScale scale;
  WireReport heard = {};         ///< Heard in this step so far.
  std::size_t unpacked = 0;      ///< Unpacked elements, including the lanes.
  bool told_too_large = false;   ///< Reported for the last step by this rank.
  bool told_too_small = false;   ///< The same.
  bool is_too_large = false;     ///< Some value on this rank exceeded the wire.
  bool may_be_too_small = true;  ///< The last result was zero, so the next two members are kept.
  bool has_values = false;       ///< Some values are not zero on this rank.
  bool sends_values = false;     ///< Some values are not zero on the wire.
};

/// The part that outlives a step, for a checkpoint.
struct WireMemory {
  WireScale::Memory scale = {};
  bool told_too_large = false;
  bool told_too_small = false;
  bool may_be_too_small = true;
  friend bool operator==(const WireMemory&, const WireMemory&) = default;
};

/// State that a set of tensors carries from step to step, independent of buckets, because plans may
/// change between two steps.
///
/// Threads: the executor's; between steps any. `too_large`: any.
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

  /// Returns true if these are the first ones.
  bool add_too_large(std::size_t count) {
    return too_large_.fetch_add(count, std::memory_order_relaxed) == 0;
  }
  /// Number of values of this rank, over all steps, that the wire could not hold. Threads: any.
  std::uint64_t too_large() const { return too_large_.load(std::memory_order_relaxed); }

 private:
  std::vector<WireTensor> tensors_;
  std::atomic<std::uint64_t> too_large_{0};
};

}  // namespace kolo
