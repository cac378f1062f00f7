#include "runtime/rows/row_order.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <numeric>

#include "comm/kernels/reduce_kernels.h"

namespace kolo {
namespace {

constexpr unsigned kDigitBits = 11;  // Counters of 16 KiB stay in the first cache.
constexpr std::size_t kDigits = std::size_t{1} << kDigitBits;

/// One stable pass by the digit at `shift`, from `from` to `to`.
void order_by_digit(std::span<const std::int64_t> list, unsigned shift,
                    std::span<const std::size_t> from, std::span<std::size_t> to) {
  const auto digit = [&](std::size_t position) {
    return (static_cast<std::uint64_t>(list[position]) >> shift) % kDigits;
  };
  std::array<std::size_t, kDigits> places{};
  for (const std::size_t position : from) ++places[digit(position)];
  std::exclusive_scan(places.begin(), places.end(), places.begin(), std::size_t{0});
  for (const std::size_t position : from) to[places[digit(position)]++] = position;
}

}  // namespace

void RowOrder::assign(std::span<const std::int64_t> list, std::size_t height) {
  positions.clear();
  ends.clear();
  if (std::ranges::adjacent_find(list, std::ranges::greater_equal()) == list.end()) {
    indices.assign(list.begin(), list.end());
    return;
  }
  positions.resize(list.size());
  scratch.resize(list.size());
  std::iota(positions.begin(), positions.end(), std::size_t{0});
  const unsigned bits = static_cast<unsigned>(std::bit_width(height - 1));
  for (unsigned shift = 0; shift < bits; shift += kDigitBits) {
    order_by_digit(list, shift, positions, scratch);
    positions.swap(scratch);
  }
  indices.clear();
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const std::int64_t index = list[positions[i]];
    if (indices.empty() || indices.back() != index) {
      indices.push_back(index);
      ends.push_back(i);
    }
    ends.back() = i + 1;
  }
}

std::optional<std::size_t> first_outside(std::span<const std::int64_t> indices,
                                         std::size_t height) {
  // A negative one is large.
  const auto is_outside = [&](std::int64_t index) {
    return static_cast<std::uint64_t>(index) >= height;
  };
  const auto found = std::ranges::find_if(indices, is_outside);
  if (found == indices.end()) return std::nullopt;
  return static_cast<std::size_t>(found - indices.begin());
}

void sum_rows(const RowOrder& order, const std::byte* rows, std::size_t width, DType dtype,
              double scale, std::byte* sums) {
  const std::size_t row_bytes = width * size_of(dtype);
  if (order.is_identity()) {
    convert(dtype, sums, dtype, rows, order.count() * width, scale);
    return;
  }
  std::vector<const void*> same;
  std::size_t begin = 0;
  for (const std::size_t end : order.ends) {
    same.clear();
    for (; begin < end; ++begin) same.push_back(rows + order.positions[begin] * row_bytes);
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
