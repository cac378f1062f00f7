#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

namespace kolo::test {

/// Calls `visit` with the descending node sizes of every division of `ranks` ranks into nodes.
inline void for_each_node_shape(int ranks,
                                const std::function<void(const std::vector<int>&)>& visit) {
  std::vector<int> sizes;
  const std::function<void(int, int)> extend = [&](int left, int largest) {
    if (left == 0) return visit(sizes);
    for (int size = std::min(left, largest); size >= 1; --size) {
      sizes.push_back(size);
      extend(left - size, size);
      sizes.pop_back();
    }
  };
  extend(ranks, ranks);
}

/// Calls `visit` for every division of up to `most` ranks, and for three divisions of twelve.
inline void for_each_node_shape_up_to(int most,
                                      const std::function<void(const std::vector<int>&)>& visit) {
  for (int ranks = 1; ranks <= most; ++ranks) for_each_node_shape(ranks, visit);
  visit({4, 4, 4});
  visit({12});
  visit(std::vector<int>(12, 1));
}

/// Returns a text such as "nodes 2 1 1".
inline std::string shape_text(const std::vector<int>& sizes) {
  std::string text = "nodes";
  for (int size : sizes) text += " " + std::to_string(size);
  return text;
}

/// Returns the algorithm as part of the name of a parametrised test.
inline std::string test_name(std::string algorithm) {
  std::ranges::replace_if(
      algorithm, [](char c) { return c == ':' || c == ','; }, '_');
  return algorithm;
}

}  // namespace kolo::test
