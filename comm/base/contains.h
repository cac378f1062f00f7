#pragma once

#include <algorithm>
#include <ranges>

namespace kolo {

/// Whether `values` contains `value`. Cost: linear. Pure.
template <std::ranges::input_range Range, typename Value>
bool contains(const Range& values, const Value& value) {
  return std::ranges::find(values, value) != std::ranges::end(values);
}

}  // namespace kolo
