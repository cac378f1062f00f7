#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "comm/device/device.h"
#include "trainer/cuda/kernels/cross_entropy.h"

namespace kolo::trainer::cuda {

/// Offsets of the parts of a batch in bytes: header, inputs, targets, each aligned to 256 bytes.
/// Pure.
struct BatchPlan {
  std::size_t inputs = 0;
  std::size_t targets = 0;
  std::size_t bytes = 0;
};
BatchPlan plan_batch(std::size_t input_bytes, std::size_t target_rows);

/// Copies batches to one place on the device through two alternating pinned buffers, so that the
/// host can fill one while the other is copied.
///
/// Threads: one. `device` and `stream` outlive it.
class BatchStaging {
 public:
  BatchStaging(kolo::Device& device, Stream& stream, std::size_t input_bytes,
               std::size_t target_rows);

  /// Copies the batch and enqueues its transfer to the device. Blocks while the transfer before the
  /// last one is in flight.
  void load(const BatchHeader& header, std::span<const std::uint8_t> inputs,
            std::span<const std::uint8_t> targets);

  // On the device; the same for all batches.
  const BatchHeader* header() const;
  const std::uint8_t* inputs() const;
  const std::uint8_t* targets() const;

 private:
  struct Slot {
    DeviceMemory memory;
    std::unique_ptr<Event> copied;
  };

  Stream& stream_;
  BatchPlan plan_;
  DeviceMemory batch_;
  std::array<Slot, 2> slots_;
  std::size_t next_ = 0;
};

}  // namespace kolo::trainer::cuda
