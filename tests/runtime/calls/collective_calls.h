#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/calls/operation_calls.h"
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

/// Whether `rank` works in place where a call is: in a gather or scatter that is up to the root.
inline bool is_in_place_at(const Goal& goal, int rank, bool in_place) {
  const bool is_roots = goal.kind == GoalKind::kGather || goal.kind == GoalKind::kScatter;
  return in_place && (!is_roots || rank == goal.root);
}

/// In place there is no input: the result holds it first.
inline CollectiveBuffers exchange_buffers_for(const Goal& goal, int rank, bool in_place) {
  CollectiveBuffers buffers;
  for (const Goal::Part& part : goal.parts()) {
    const int sender = part.contributors.front();
    const std::vector<float> values = pattern(part.extent, sender + 1);
    if (sender == rank) buffers.input.insert(buffers.input.end(), values.begin(), values.end());
    if (!part.receives(rank)) continue;
    buffers.expected.insert(buffers.expected.end(), values.begin(), values.end());
  }
  buffers.result.resize(buffers.expected.size(), -1);
  if (in_place) buffers.result = std::exchange(buffers.input, {});
  return buffers;
}

inline CollectiveBuffers buffers_for(const Goal& goal, int rank, bool is_call_in_place) {
  if (goal.kind == GoalKind::kAllToAll) return exchange_buffers_for(goal, rank, is_call_in_place);
  CollectiveBuffers buffers;
  const bool in_place = is_in_place_at(goal, rank, is_call_in_place);
  const bool keeps_input = in_place && goal.kind == GoalKind::kScatter;
  const auto append = [](std::vector<float>& to, const std::vector<float>& values) {
    to.insert(to.end(), values.begin(), values.end());
  };
  for (const Goal::Part& part : goal.parts()) {
    const bool gives = part.contributes(rank);
    const bool gets = part.receives(rank);
    if (!gives && !gets) continue;
    const std::vector<float> own = pattern(part.extent, rank + 1);
    int factors = 0;
    for (int each : part.contributors) factors += each + 1;
    if (gives && (!in_place || keeps_input)) append(buffers.input, own);
    if (keeps_input) continue;
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

/// Elements of the part of the rank that calls.
inline std::size_t own_count(const OperationCalls& calls, const std::vector<std::size_t>& counts) {
  return counts[static_cast<std::size_t>(calls.rank())];
}

inline std::vector<CollectiveCall> collective_calls() {
  const auto total = [](const std::vector<std::size_t>& counts) {
    std::size_t sum = 0;
    for (const std::size_t count : counts) sum += count;
    return sum;
  };
  return {
      {.name = "broadcast",
       .make =
           [=](const auto& calls, const auto& name, auto& b, const auto& counts, int root,
               bool in_place) {
             BufferView result = view(b.result);
             result.count = total(counts);
             return in_place ? calls.broadcast(name, result, root)
                             : calls.broadcast(name, input_of(b, in_place), result, root);
           },
       .goal =
           [=](const auto& counts, int root) {
             return Goal::broadcast(root, static_cast<int>(counts.size()), total(counts));
           }},
      {.name = "reduce",
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
       .make =
           [](const auto& calls, const auto& name, auto& b, const auto& counts, int,
              bool in_place) {
             return calls.reduce_scatter(name, input_of(b, in_place), view(b.result),
                                         ReduceOp::kSum, counts);
           },
       .goal = [](const auto& counts, int) { return Goal::reduce_scatter(counts); }},
      {.name = "all_gather",
       .make =
           [](const auto& calls, const auto& name, auto& b, const auto& counts, int,
              bool in_place) {
             return calls.all_gather(name, input_of(b, in_place), view(b.result), counts);
           },
       .goal = [](const auto& counts, int) { return Goal::all_gather(counts); }},
      {.name = "gather",
       .make =
           [](const auto& calls, const auto& name, auto& b, const auto& counts, int root,
              bool in_place) {
             const std::size_t mine = own_count(calls, counts);
             const bool is_here = in_place && calls.rank() == root;
             float* const input = is_here ? nullptr : b.input.data();
             return calls.gather(name, {input, mine, DType::kFloat32}, b.result.data(), root,
                                 counts);
           },
       .goal = [](const auto& counts, int root) { return Goal::gather(root, counts); }},
      {.name = "scatter",
       .make =
           [](const auto& calls, const auto& name, auto& b, const auto& counts, int root,
              bool in_place) {
             const std::size_t mine = own_count(calls, counts);
             const bool is_here = in_place && calls.rank() == root;
             float* const result = is_here ? nullptr : b.result.data();
             return calls.scatter(name, b.input.data(), {result, mine, DType::kFloat32}, root,
                                  counts);
           },
       .goal = [](const auto& counts, int root) { return Goal::scatter(root, counts); }},
      {.name = "all_to_all",
       .takes_counts = false,
       .make =
           [](const auto& calls, const auto& name, auto& b, const auto&, int, bool in_place) {
             return calls.all_to_all(name, input_of(b, in_place), view(b.result), {});
           },
       .goal =
           [](const auto& counts, int) {
             return Goal::all_to_all(
                 static_cast<int>(counts.size()),
                 std::vector<std::size_t>(counts.size() * counts.size(), counts[0]));
           }},
  };
}

/// Those, with all_reduce and an all_to_all in which each pair of ranks has parts of its own size.
inline std::vector<CollectiveCall> every_collective_call() {
  const auto pairs = [](const std::vector<std::size_t>& counts) {
    std::vector<std::size_t> all;
    for (const std::size_t from : counts) {
      for (const std::size_t to : counts) all.push_back(from + to);
    }
    return all;
  };
  std::vector<CollectiveCall> calls = collective_calls();
  calls.push_back(
      {.name = "all_reduce",
       .takes_counts = false,
       .make =
           [](const auto& make, const auto& name, auto& b, const auto&, int, bool in_place) {
             if (in_place) return make.all_reduce(name, view(b.result), ReduceOp::kSum);
             return make.all_reduce(name, b.input.data(), view(b.result), ReduceOp::kSum);
           },
       .goal = [](const auto& counts,
                  int) { return Goal::all_reduce(static_cast<int>(counts.size()), counts[0]); }});
  calls.push_back({.name = "all_to_all of pairs",
                   .make =
                       [pairs](const auto& make, const auto& name, auto& b, const auto& counts, int,
                               bool in_place) {
                         return make.all_to_all(name, input_of(b, in_place), view(b.result),
                                                pairs(counts));
                       },
                   .goal =
                       [pairs](const auto& counts, int) {
                         return Goal::all_to_all(static_cast<int>(counts.size()), pairs(counts));
                       }});
  return calls;
}

}  // namespace kolo::test
