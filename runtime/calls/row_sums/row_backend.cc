#include "runtime/calls/row_sums/row_backend.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "comm/base/aligned_memory.h"

namespace kolo {
namespace {

class HostRows final : public RowBackend {
 public:
  std::shared_ptr<std::byte> allocate(std::size_t bytes) override {
    return allocate_aligned(bytes);
  }
  void begin(const NativeStream*) override {}
  void sum_rows(const RowGroups& groups, const std::byte* rows, const RowTable& table, double scale,
                std::byte* sums) override {
    kolo::sum_rows(groups, rows, table.width, table.dtype, scale, sums);
  }
  void spread_rows(std::span<const std::int64_t> indices, const std::byte* rows,
                   const RowTable& table, std::byte* target) override {
    if (table.bytes() > 0) std::memset(target, 0, table.bytes());
    kolo::spread_rows(indices, rows, table.row_bytes(), target);
  }
  std::shared_ptr<const Event> done() const override { return nullptr; }
};

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kLeastBytes = std::size_t{64} << 10;

/// Rows in device memory, from the pool of a stream of this object. The device adds them up on this
/// stream, using index lists that are copied through pinned memory. Outgrown lists, which are
/// together smaller than the last ones, stay until the end: freeing pinned memory waits for all
/// work of the device, and thereby perhaps for a peer that waits for this rank.
class DeviceRows final : public RowBackend {
 public:
  explicit DeviceRows(Device& device);

  std::shared_ptr<std::byte> allocate(std::size_t bytes) override;
  void begin(const NativeStream* stream) override;
  void sum_rows(const RowGroups& groups, const std::byte* rows, const RowTable& table, double scale,
                std::byte* sums) override;
  void spread_rows(std::span<const std::int64_t> indices, const std::byte* rows,
                   const RowTable& table, std::byte* target) override;
  std::shared_ptr<const Event> done() const override { return done_; }

 private:
  /// Pinned memory for lists, and device memory for their copies.
  struct ListMemory {
    DeviceMemory pinned, copies;
  };

  /// Enqueues a copy of `list` to the device, and returns the copy.
  template <typename T>
  Span<const T> copied(Span<const T> list);
  /// Makes room for `bytes` bytes in the last of `lists_`.
  void reserve(std::size_t bytes);

  Device& device_;
  std::vector<ListMemory> lists_;  // the last one is in use
  std::size_t used_ = 0;           // bytes used of the last list
  const std::unique_ptr<Event> given_;
  const std::shared_ptr<Event> done_;
  const std::unique_ptr<Stream> stream_;  // destroyed first
};

DeviceRows::DeviceRows(Device& device)
    : device_(device),
      given_(device.make_event()),
      done_(device.make_event()),
      stream_(device.make_stream()) {}

std::shared_ptr<std::byte> DeviceRows::allocate(std::size_t bytes) {
  auto owner = std::make_shared<DeviceMemory>(device_.allocate_on(*stream_, bytes));
  stream_->record(*done_);  // The memory is usable from here on.
  std::byte* const data = owner->data();
  return {std::move(owner), data};
}

void DeviceRows::begin(const NativeStream* stream) {
  used_ = 0;
  if (stream == nullptr) return;
  device_.record(*stream, *given_);
  stream_->wait(*given_);
  stream_->record(*done_);
}

// The capacity at least doubles, so reallocations soon end.
void DeviceRows::reserve(std::size_t bytes) {
  const std::size_t capacity = lists_.empty() ? 0 : lists_.back().pinned.bytes();
  if (used_ + bytes <= capacity) return;
  const std::size_t next = std::max({kLeastBytes, 2 * capacity, capacity + bytes});
  lists_.push_back({.pinned = device_.allocate(next, MemoryKind::kPinned),
                    .copies = device_.allocate_on(*stream_, next)});
  used_ = 0;
}

template <typename T>
Span<const T> DeviceRows::copied(Span<const T> list) {
  if (list.empty()) return {};
  const std::size_t bytes = list.size_bytes();
  reserve(bytes);
  const auto place = [&](const DeviceMemory& memory) {
    return BufferView{memory.data() + used_, bytes, DType::kUInt8, memory.kind()};
  };
  const BufferView pinned = place(lists_.back().pinned), copy = place(lists_.back().copies);
  std::memcpy(pinned.data, list.data(), bytes);
  stream_->copy(copy, pinned);
  used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return {static_cast<const T*>(copy.data), list.size()};
}

void DeviceRows::sum_rows(const RowGroups& groups, const std::byte* rows, const RowTable& table,
                          double scale, std::byte* sums) {
  const RowGroups lists{
      .count = groups.count, .positions = copied(groups.positions), .ends = copied(groups.ends)};
  device_.kernels().sum_rows(*stream_, lists, rows, table.width, table.dtype, scale, sums);
  stream_->record(*done_);
}

void DeviceRows::spread_rows(std::span<const std::int64_t> indices, const std::byte* rows,
                             const RowTable& table, std::byte* target) {
  device_.kernels().spread_rows(*stream_, copied<std::int64_t>(indices), rows, table.row_bytes(),
                                target, table.height);
  stream_->record(*done_);
}

}  // namespace

std::unique_ptr<RowBackend> make_row_backend(Device* device) {
  if (device == nullptr) return std::make_unique<HostRows>();
  return std::make_unique<DeviceRows>(*device);
}

}  // namespace kolo
