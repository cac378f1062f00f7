#pragma once

#include "runtime/calls/rows/row_backend.h"

namespace kolo {

/// Rows in host memory, which the calling thread adds up. Stateless.
class HostRows final : public RowBackend {
 public:
  std::shared_ptr<std::byte> allocate(std::size_t bytes) override;
  void begin(const NativeStream*) override {}
  void sum_rows(const RowGroups& groups, const std::byte* rows, const RowTable& table, double scale,
                std::byte* sums) override;
  void spread_rows(std::span<const std::int64_t> indices, const std::byte* rows,
                   const RowTable& table, std::byte* target) override;
  std::shared_ptr<const Event> done() const override { return nullptr; }
};

}  // namespace kolo
