#pragma once

#include <vector>

#include "runtime/calls/rows/row_backend.h"

namespace kolo {

/// Rows in the memory of a device, which adds them up on a stream of this object, by lists of rows
/// that are copied there through pinned memory. A sum has this memory until the next one begins.
class DeviceRows final : public RowBackend {
 public:
  /// `device` outlives it.
  explicit DeviceRows(Device& device);

  std::shared_ptr<std::byte> allocate(std::size_t bytes) override;
  void begin(const NativeStream* stream) override;
  void sum_rows(const RowGroups& groups, const std::byte* rows, const RowTable& table, double scale,
                std::byte* sums) override;
  void spread_rows(std::span<const std::int64_t> indices, const std::byte* rows,
                   const RowTable& table, std::byte* target) override;
  std::shared_ptr<const Event> done() const override { return done_; }

 private:
  /// Room for lists, and for their copies on the device.
  struct ListMemory {
    DeviceMemory pinned, copies;
  };

  /// The copy of a list on the device.
  template <typename T>
  std::span<const T> copied(std::span<const T> list);
  /// Makes room in the last one.
  void reserve(std::size_t bytes);

  Device& device_;
  std::vector<ListMemory> lists_;  // the last one is in use
  std::size_t used_ = 0;           // bytes of that
  const std::unique_ptr<Event> given_;
  const std::shared_ptr<Event> done_;
  const std::unique_ptr<Stream> stream_;  // ends first
};

}  // namespace kolo
