#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "comm/device/device.h"
#include "comm/kernels/reduce_kernels.h"
#include "runtime/calls/row_sums/row_sums.h"

namespace kolo {

/// Allocates memory for the rows of a table, and adds rows: in host memory in the calling thread,
/// or in device memory on the device, in the background.
///
/// Threads: one at a time. Errors: KoloError(kResources); errors of streams.
class RowBackend {
 public:
  virtual ~RowBackend() = default;

  virtual std::shared_ptr<std::byte> allocate(std::size_t bytes) = 0;

  /// Begins a sum of a table. If `stream` is not null, the sum begins after the work enqueued on
  /// `stream` so far. Precondition: the last sum is done.
  virtual void begin(const NativeStream* stream) = 0;
  /// Works like `sum_rows` in comm/kernels/reduce_kernels.h.
  virtual void sum_rows(const RowGroups& groups, const std::byte* rows, const RowTable& table,
                        double scale, std::byte* sums) = 0;
  /// Copies row i of `rows` to row `indices[i]` of a table, and sets all other rows of the table to
  /// zero.
  virtual void spread_rows(std::span<const std::int64_t> indices, const std::byte* rows,
                           const RowTable& table, std::byte* target) = 0;

  /// Returns the event after the work enqueued so far; null if it is done.
  virtual std::shared_ptr<const Event> done() const = 0;
};

/// Makes a backend for rows in the memory of `device`, which must outlive the backend, or for rows
/// in host memory if `device` is null.
std::unique_ptr<RowBackend> make_row_backend(Device* device);

/// A buffer that is reused and grows as needed. Growing discards its contents.
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
