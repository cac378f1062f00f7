#include "runtime/calls/row_sums/row_order.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <numeric>

namespace kolo {
namespace {

constexpr unsigned kDigitBits = 11;  // 16 KiB of counters stay in the L1 cache.
constexpr std::size_t kDigits = std::size_t{1} << kDigitBits;

/// One stable pass of a radix sort: sorts the positions `from` by the digit at `shift`, into `to`.
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
  // The cast makes a negative index a large one.
  const auto is_outside = [&](std::int64_t index) {
    return static_cast<std::uint64_t>(index) >= height;
  };
  const auto found = std::ranges::find_if(indices, is_outside);
  if (found == indices.end()) return std::nullopt;
  return static_cast<std::size_t>(found - indices.begin());
}

}  // namespace kolo
