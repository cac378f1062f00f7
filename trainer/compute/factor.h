#pragma once

#include <cstddef>
#include <span>

#include "comm/base/aligned_memory.h"
#include "trainer/compute/device.h"

namespace kolo::trainer {

/// A tensor as products read it, in the precision of the device: float32 values where they are, or
/// a copy that is rounded to bfloat16, or to float16 in float32 memory. With float16, which is
/// emulated, values beyond 65504 become infinite and small ones vanish, as on a device that has it.
///
/// Threads: one.
class Factor {
 public:
  /// For at most `elements` values. `device` outlives it.
  Factor(Device& device, std::size_t elements);

  /// Before: the values stay valid and unchanged as long as operands are used.
  void assign(std::span<const float> values);

  /// All values, of `Device::operand_dtype`.
  const void* data() const { return data_; }
  /// The first values as a dense matrix.
  Operand operand(std::size_t rows, std::size_t columns) const {
    return operand(0, rows, columns, columns);
  }
  /// The values from element `offset` on; rows are `stride` elements apart.
  Operand operand(std::size_t offset, std::size_t rows, std::size_t columns,
                  std::size_t stride) const;

 private:
  Device& device_;
  AlignedMemory copy_;  // null for float32
  const std::byte* data_ = nullptr;
};

}  // namespace kolo::trainer
