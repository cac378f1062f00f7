#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/runtime_job.h"

/// Helpers for tests in which the ranks of a `RuntimeJob` call, and checks of their errors.
namespace kolo::test {

/// Returns options for small jobs on one node, in which mismatches are detected after 50 ms.
inline Options test_options() {
  return {.arena_bytes = std::size_t{1} << 20,
          .group_arena_bytes = std::size_t{16} << 20,
          .node_id = "a",
          .mismatch_after = std::chrono::milliseconds(50)};
}

inline BufferView view(std::vector<float>& data) {
  return {data.data(), data.size(), DType::kFloat32};
}

/// Sums one buffer over all ranks and checks the result.
inline void all_reduce_works(Runtime& runtime, const std::string& name, std::size_t count = 100) {
  std::vector<float> data(count, static_cast<float>(runtime.rank() + 1));
  runtime.all_reduce(name, view(data)).wait();
  const int n = runtime.world_size();
  for (float value : data) {
    require(value == static_cast<float>(n * (n + 1) / 2), name + ": " + std::to_string(value));
  }
}

/// Returns class and text of the KoloError that `call` throws, or an empty string.
inline std::string error_of(const std::function<void()>& call) {
  try {
    call();
    return {};
  } catch (const KoloError& e) {
    return std::string(to_string(e.error().code)) + ": " + e.what();
  }
}

}  // namespace kolo::test
