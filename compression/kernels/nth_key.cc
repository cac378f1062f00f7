#include "compression/kernels/nth_key.h"

#include <algorithm>
#include <array>
#include <functional>

#include "compression/kernels/radix_select.h"

namespace kolo::radix {
namespace {

constexpr unsigned kBinBits = 9;
constexpr std::uint32_t kBins = 1u << kBinBits;
// 512 bins of 2^16 keys are four octaves of 2^23; 512 bins of 2^22 are all keys there are.
constexpr unsigned kNearShift = 16;
constexpr unsigned kFarShift = 22;
// So few are sorted sooner than counted.
constexpr std::size_t kFew = 192;

// Bins of 2^shift keys from `floor` up; the last one has all that lies above.
struct Bins {
  std::uint32_t floor;
  unsigned shift;
  std::uint32_t of(std::uint32_t key) const { return std::min((key - floor) >> shift, kBins - 1); }
};

template <typename Values, typename KeyOf>
Bin find_bin_of(const Bins& bins, const Values& values, KeyOf key, std::size_t k) {
  std::array<std::uint32_t, kBins> counts{};
  for (const auto value : values) ++counts[bins.of(key(value))];
  return find_bin(counts.data(), kBins, static_cast<std::uint32_t>(k));
}

NthKey by_partial_sort(std::vector<std::uint32_t>& keys, std::size_t k) {
  const auto nth = keys.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(keys.begin(), nth, keys.end(), std::greater<>());
  const std::uint32_t key = *nth;
  const auto above = std::ranges::count_if(keys, [&](std::uint32_t other) { return other > key; });
  const auto equal = std::ranges::count(keys, key);
  return {.key = key,
          .need = k - static_cast<std::size_t>(above),
          .equal = static_cast<std::size_t>(equal)};
}

}  // namespace

NthKey nth_largest_key(std::span<const float> values, std::size_t k, std::uint32_t floor,
                       std::vector<std::uint32_t>& keys) {
  keys.clear();
  if (values.size() <= kFew) {
    for (const float value : values) keys.push_back(key_of(value));
    return by_partial_sort(keys, k);
  }
  Bins bins{.floor = floor, .shift = kNearShift};
  Bin bin = find_bin_of(bins, values, key_of, k);
  if (bin.index == kBins - 1) {
    bins.shift = kFarShift;
    bin = find_bin_of(bins, values, key_of, k);
  }
  for (const float value : values) {
    if (bins.of(key_of(value)) == bin.index) keys.push_back(key_of(value));
  }
  while (keys.size() > kFew && bins.shift > 0) {
    bins.floor += bin.index << bins.shift;
    bins.shift -= std::min(bins.shift, kBinBits);
    const std::size_t need = bin.need;
    bin = find_bin_of(bins, keys, std::identity(), need);
    std::erase_if(keys, [&](std::uint32_t key) { return bins.of(key) != bin.index; });
  }
  return by_partial_sort(keys, bin.need);
}

}  // namespace kolo::radix
