#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/engine/operation_calls.h"
#include "tests/support/engine_job.h"

namespace kolo::test {

/// The contribution of a rank to an element of a part is a factor of the rank times this: small
/// integers, so that sums are exact in any order.
inline std::vector<float> pattern(const Extent& elements, int factor) {
  std::vector<float> values(elements.count);
  int step = static_cast<int>(elements.offset % 11);
  for (float& value : values) {
    value = static_cast<float>(factor * (step + 1));
    step = step == 10 ? 0 : step + 1;
  }
  return values;
}

/// The buffers of one rank for a goal: part by part.
struct CollectiveBuffers {
  std::vector<float> input, result, expected;
};

inline CollectiveBuffers buffers_for(const Goal& goal, int rank, bool in_place) {
  CollectiveBuffers buffers;
  const auto append = [](std::vector<float>& to, const std::vector<float>& values) {
    to.insert(to.end(), values.begin(), values.end());
  };
  for (const Goal::Part& part : goal.parts) {
    const bool gives = part.contributes(rank);
    const bool gets = part.receives(rank);
    if (!gives && !gets) continue;
    const std::vector<float> own = pattern(part.extent, rank + 1);
    int factors = 0;
    for (int each : part.contributors) factors += each + 1;
    if (gives && !in_place) append(buffers.input, own);
    if (gets || in_place) {
      append(buffers.result, gives && in_place ? own : std::vector<float>(own.size(), -1));
      append(buffers.expected, gets ? pattern(part.extent, factors) : own);
    }
  }
  return buffers;
}

/// The call of one collective by one rank.
struct CollectiveCall {
  std::string name;
  bool takes_counts = true;
  bool takes_null_input = false;
  std::function<std::shared_ptr<Operation>(
      const OperationCalls& calls, const std::string& name, CollectiveBuffers& buffers,
      const std::vector<std::size_t>& counts, int root, bool in_place)>
      make;
  std::function<Goal(const std::vector<std::size_t>& counts, int root)> goal;
};

inline const float* input_of(const CollectiveBuffers& buffers, bool in_place) {
  static constexpr float kNothing = 0;
  if (in_place) return nullptr;
  return buffers.input.empty() ? &kNothing : buffers.input.data();
}

inline std::vector<CollectiveCall> collective_calls() {
  const auto total = [](const std::vector<std::size_t>& counts) {
    std::size_t sum = 0;
    for (const std::size_t count : counts) sum += count;
    return sum;
  };
  return {
      {.name = "reduce",
       .takes_null_input = true,
       .make =
           [=](const auto& calls, const auto& name, auto& b, const auto& counts, int root,
               bool in_place) {
             BufferView result = view(b.result);
             result.count = total(counts);
             return calls.reduce(name, input_of(b, in_place), result, root, ReduceOp::kSum);
           },
       .goal =
           [=](const auto& counts, int root) {
             return Goal::reduce(root, static_cast<int>(counts.size()), total(counts));
           }},
      {.name = "reduce_scatter",
       .takes_null_input = true,
       .make =
           [](const auto& calls, const auto& name, auto& b, const auto& counts, int,
              bool in_place) {
             return calls.reduce_scatter(name, input_of(b, in_place), view(b.result),
                                         ReduceOp::kSum, counts);
           },
       .goal = [](const auto& counts, int) { return Goal::reduce_scatter(counts); }},
      {.name = "all_gather",
       .takes_null_input = true,
       .make =
           [](const auto& calls, const auto& name, auto& b, const auto& counts, int,
              bool in_place) {
             return calls.all_gather(name, input_of(b, in_place), view(b.result), counts);
           },
       .goal = [](const auto& counts, int) { return Goal::all_gather(counts); }},
      {.name = "gather",
       .make =
           [](const auto& calls, const auto& name, auto& b, const auto& counts, int root, bool) {
             return calls.gather(name, view(b.input), b.result.data(), root, counts);
           },
       .goal = [](const auto& counts, int root) { return Goal::gather(root, counts); }},
      {.name = "scatter",
       .make =
           [](const auto& calls, const auto& name, auto& b, const auto& counts, int root, bool) {
             return calls.scatter(name, b.input.data(), view(b.result), root, counts);
           },
       .goal = [](const auto& counts, int root) { return Goal::scatter(root, counts); }},
      {.name = "all_to_all",
       .takes_counts = false,
       .make = [](const auto& calls, const auto& name, auto& b, const auto&, int,
                  bool) { return calls.all_to_all(name, b.input.data(), view(b.result), {}); },
       .goal =
           [](const auto& counts, int) {
             return Goal::all_to_all(
                 static_cast<int>(counts.size()),
                 std::vector<std::size_t>(counts.size() * counts.size(), counts[0]));
           }},
  };
}

}  // namespace kolo::test
