#include "runtime/calls/rows/host_rows.h"

#include <cstring>

#include "comm/base/aligned_memory.h"

namespace kolo {

std::shared_ptr<std::byte> HostRows::allocate(std::size_t bytes) { return allocate_aligned(bytes); }

void HostRows::sum_rows(const RowGroups& groups, const std::byte* rows, const RowTable& table,
                        double scale, std::byte* sums) {
  kolo::sum_rows(groups, rows, table.width, table.dtype, scale, sums);
}

void HostRows::spread_rows(std::span<const std::int64_t> indices, const std::byte* rows,
                           const RowTable& table, std::byte* target) {
  if (table.bytes() > 0) std::memset(target, 0, table.bytes());
  kolo::spread_rows(indices, rows, table.row_bytes(), target);
}

}  // namespace kolo
