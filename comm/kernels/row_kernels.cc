#include "comm/kernels/row_kernels.h"

#include <cstring>
#include <vector>

#include "comm/kernels/reduce_kernels.h"

namespace kolo {

void sum_rows(const RowGroups& groups, const std::byte* rows, std::size_t width, DType dtype,
              double scale, std::byte* sums) {
  const auto sum_up = [&](std::span<const void* const> same, std::size_t count) {
    if (same.size() == 1 && scale == 1.0) return convert(dtype, sums, dtype, same[0], count, 1.0);
    reduce(dtype, ReduceOp::kSum, sums, same, count, scale);
  };
  std::vector<const void*> same = {rows};
  if (groups.positions.empty()) return sum_up(same, groups.count * width);
  const std::size_t row_bytes = width * size_of(dtype);
  std::size_t begin = 0;
  for (const std::size_t end : groups.ends) {
    same.clear();
    for (; begin < end; ++begin) same.push_back(rows + groups.positions[begin] * row_bytes);
    sum_up(same, width);
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
