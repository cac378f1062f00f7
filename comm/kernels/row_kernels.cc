#include "comm/kernels/row_kernels.h"

#include <cstring>
#include <vector>

#include "comm/kernels/reduce_kernels.h"

namespace kolo {

void sum_rows(const RowGroups& groups, const std::byte* rows, std::size_t width, DType dtype,
              double scale, std::byte* sums) {
  if (groups.positions.empty()) {
    convert(dtype, sums, dtype, rows, groups.count * width, scale);
    return;
  }
  const std::size_t row_bytes = width * size_of(dtype);
  std::vector<const void*> same;
  std::size_t begin = 0;
  for (const std::size_t end : groups.ends) {
    same.clear();
    for (; begin < end; ++begin) same.push_back(rows + groups.positions[begin] * row_bytes);
    if (same.size() == 1) {
      convert(dtype, sums, dtype, same.front(), width, scale);
    } else {
      reduce(dtype, ReduceOp::kSum, sums, same, width, scale);
    }
    sums += row_bytes;
  }
}

void spread_rows(std::span<const std::int64_t> indices, const std::byte* rows,
                 std::size_t row_bytes, std::byte* table) {
  if (row_bytes == 0) return;  // rows of no columns may lie nowhere: null
  for (const std::int64_t index : indices) {
    std::memcpy(table + static_cast<std::size_t>(index) * row_bytes, rows, row_bytes);
    rows += row_bytes;
  }
}

}  // namespace kolo
