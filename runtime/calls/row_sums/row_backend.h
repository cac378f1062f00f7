#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "comm/device/device.h"
#include "comm/kernels/reduce_kernels.h"
#include "runtime/calls/row_sums/row_sums.h"

namespace kolo {

/// The memory that holds the rows of a table, and what adds them up there: host memory and the
/// calling thread, or device memory and the device, whose work goes on in the background.
///
/// Threads: one at a time. Errors: KoloError(kResources); those of a stream.
class RowBackend {
 public:
  virtual ~RowBackend() = default;

  virtual std::shared_ptr<std::byte> allocate(std::size_t bytes) = 0;

  /// Begins a sum of a table, after the work enqueued on `stream` so far, if there is one.
  /// Precondition: the last sum is done.
  virtual void begin(const NativeStream* stream) = 0;
  /// As the function of this name in comm/kernels/reduce_kernels.h.
  virtual void sum_rows(const RowGroups& groups, const std::byte* rows, const RowTable& table,
                        double scale, std::byte* sums) = 0;
  /// Copies row i of `rows` to row `indices[i]` of a table, and sets all other rows of the table to
  /// zero.
  virtual void spread_rows(std::span<const std::int64_t> indices, const std::byte* rows,
                           const RowTable& table, std::byte* target) = 0;

  /// Event after the work enqueued so far; null if it is done.
  virtual std::shared_ptr<const Event> done() const = 0;
};

/// For rows in the memory of `device`, which outlives the backend; if it is null, for rows in host
/// memory, which the calling thread adds up.
std::unique_ptr<RowBackend> make_row_backend(Device* device);

/// A growing buffer that is reused. Growing loses its contents.
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
