#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "comm/device/device.h"
#include "comm/kernels/reduce_kernels.h"
#include "runtime/calls/rows/row_sums.h"

namespace kolo {

/// The memory in which rows of a table are, and what adds them up there: the host's, or those of a
/// device, whose work goes on in the background.
///
/// Threads: one at a time. Errors: KoloError(kResources); those of a stream.
class RowBackend {
 public:
  virtual ~RowBackend() = default;

  virtual std::shared_ptr<std::byte> allocate(std::size_t bytes) = 0;

  /// Begins a sum of a table, behind what `stream` does so far, if there is one. Before: all is
  /// done.
  virtual void begin(const NativeStream* stream) = 0;
  /// As the function of this name in comm/kernels/reduce_kernels.h.
  virtual void sum_rows(const RowGroups& groups, const std::byte* rows, const RowTable& table,
                        double scale, std::byte* sums) = 0;
  /// Row `indices[i]` of a table becomes row i of `rows`, and each of its other rows zero.
  virtual void spread_rows(std::span<const std::int64_t> indices, const std::byte* rows,
                           const RowTable& table, std::byte* target) = 0;

  /// Behind all of that; null where it is done at once.
  virtual std::shared_ptr<const Event> done() const = 0;
};

/// Of rows in host memory, which the calling thread adds up, or in that of `device`, which outlives
/// it, if it is not null.
std::unique_ptr<RowBackend> make_row_backend(Device* device);

/// Bytes that grow and are used again. Their contents are lost when they grow.
class RowBytes {
 public:
  std::byte* resize(std::size_t bytes, RowBackend& backend) {
    if (bytes > capacity_) {
      memory_ = nullptr;
      capacity_ = 0;
      memory_ = backend.allocate(bytes);
      capacity_ = bytes;
    }
    return memory_.get();
  }
  std::byte* data() const { return memory_.get(); }

 private:
  std::shared_ptr<std::byte> memory_;
  std::size_t capacity_ = 0;
};

}  // namespace kolo
