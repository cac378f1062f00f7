#pragma once

#include <cmath>
#include <cstddef>
#include <random>
#include <type_traits>
#include <vector>

#include "comm/device/device_kernels.h"

/// Inputs for the kernel that encodes values.
namespace kolo::test {

inline constexpr codes::Kind kCodeKinds[] = {codes::Kind::kInt8, codes::Kind::kFp8,
                                             codes::Kind::kTwoBit, codes::Kind::kSign};

/// Values of a tensor, with blocks of several sizes, gaps between them, and codes in another order.
struct CodeCase {
  std::vector<float> values;
  std::vector<CodedBlock> blocks;
  std::size_t bytes = 0;
};

inline CodeCase any_code_case(std::mt19937& random, codes::Kind kind) {
  CodeCase result;
  for (const std::size_t count : {std::size_t{1}, std::size_t{3}, std::size_t{31}, std::size_t{33},
                                  std::size_t{64}, std::size_t{255}, codes::kBlock}) {
    result.blocks.push_back({.first = result.values.size() + random() % 3,
                             .count = count,
                             .element = random() % 100'000});
    result.values.resize(result.blocks.back().first + count);
  }
  for (std::size_t i = result.blocks.size(); i-- > 0;) {
    result.blocks[i].offset = result.bytes;
    codes::visit(kind, [&]<typename Code>(std::type_identity<Code>) {
      result.bytes += codes::bytes<Code>(result.blocks[i].count) + random() % 2;
    });
  }
  std::normal_distribution<float> normal;
  for (float& value : result.values) {
    value = random() % 9 == 0 ? -0.0f
                              : std::ldexp(normal(random), static_cast<int>(random() % 24) - 16);
  }
  return result;
}

}  // namespace kolo::test
