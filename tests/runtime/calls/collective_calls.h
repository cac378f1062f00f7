#pragma once

#include <cstddef>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "runtime/calls/operation_calls.h"
#include "tests/support/engine_job.h"

namespace kolo::test {

/// Returns a rank's contribution to a part: a pattern times a factor of the rank. Its elements are
/// small integers, so that sums are exact in any order.
inline std::vector<float> pattern(const Extent& elements, int factor) {
  std::vector<float> values(elements.count);
  int step = static_cast<int>(elements.offset % 11);
  for (float& value : values) {
    value = static_cast<float>(factor * (step + 1));
    step = step == 10 ? 0 : step + 1;
  }
  return values;
}

/// The buffers of one rank for a spec: the elements of all its parts, one part after the other.
struct CollectiveBuffers {
  std::vector<float> input, result, expected;
};

/// Returns whether `rank` works in place if the call is `in_place`. In a gather or scatter, only
/// the root may work in place.
inline bool is_in_place_at(const CollectiveSpec& spec, int rank, bool in_place) {
  return in_place && (!is_up_to_root(spec.kind) || rank == spec.root);
}

/// Makes the buffers of an all-to-all. In place, the result buffer first holds the input.
inline CollectiveBuffers exchange_buffers_for(const CollectiveSpec& spec, int rank, bool in_place) {
  CollectiveBuffers buffers;
  for (const CollectiveSpec::Part& part : spec.parts()) {
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

inline CollectiveBuffers buffers_for(const CollectiveSpec& spec, int rank, bool is_call_in_place) {
  if (has_pairs(spec.kind)) return exchange_buffers_for(spec, rank, is_call_in_place);
  CollectiveBuffers buffers;
  const bool in_place = is_in_place_at(spec, rank, is_call_in_place);
  const bool keeps_input = in_place && is_up_to_root(spec.kind) && is_from_root(spec.kind);
  const auto append = [](std::vector<float>& to, const std::vector<float>& values) {
    to.insert(to.end(), values.begin(), values.end());
  };
  for (const CollectiveSpec::Part& part : spec.parts()) {
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

/// A kind of collective call in a test.
struct CollectiveCall {
  std::string name;
  OperationKind kind = OperationKind::kAllReduce;
  bool takes_counts = true;  ///< Whether parts may have different counts.

  /// Returns the counts of the parts, or none for an operation without parts. In an all-to-all, two
  /// ranks exchange equal counts.
  std::vector<std::size_t> parts(const std::vector<std::size_t>& counts) const {
    if (!takes_counts || !has_parts(kind)) return {};
    if (!has_pairs(kind)) return counts;
    std::vector<std::size_t> pairs;
    for (const std::size_t from : counts) {
      for (const std::size_t to : counts) pairs.push_back(from + to);
    }
    return pairs;
  }

  Tensor tensor(CollectiveBuffers& buffers, PartCounts parts, bool in_place) const {
    if (in_place && !is_up_to_root(kind)) return {buffers.result, parts};
    return {buffers.input, buffers.result, parts};
  }

  std::shared_ptr<Operation> make(const OperationCalls& calls, const std::string& of,
                                  CollectiveBuffers& buffers,
                                  const std::vector<std::size_t>& counts, int root,
                                  bool in_place) const {
    const std::vector<std::size_t> given = parts(counts);
    return calls.make(kind, of, tensor(buffers, given, in_place), root);
  }

  CollectiveSpec spec(const std::vector<std::size_t>& counts, int root) const {
    const int ranks = static_cast<int>(counts.size());
    const auto total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    if (kind == OperationKind::kAllReduce) return CollectiveSpec::all_reduce(ranks, counts[0]);
    if (!has_parts(kind)) return CollectiveSpec::of(kind, root, ranks, {1, total});
    const std::vector<std::size_t> even(counts.size() * counts.size(), counts[0]);
    if (has_pairs(kind) && !takes_counts) return CollectiveSpec::of(kind, root, ranks, even);
    return CollectiveSpec::of(kind, root, ranks, parts(counts));
  }
};

/// Returns a call of every kind except all_reduce.
inline std::vector<CollectiveCall> collective_calls() {
  std::vector<CollectiveCall> calls;
  for (const OperationKind kind : kAllCollectiveKinds) {
    if (kind == OperationKind::kAllReduce) continue;
    calls.push_back(
        {.name = std::string(call_name(kind)), .kind = kind, .takes_counts = !has_pairs(kind)});
  }
  return calls;
}

/// Returns `collective_calls`, an all_reduce, and an all_to_all with a count for each pair of
/// ranks.
inline std::vector<CollectiveCall> every_collective_call() {
  std::vector<CollectiveCall> calls = collective_calls();
  calls.push_back({.name = "all_reduce", .kind = OperationKind::kAllReduce, .takes_counts = false});
  calls.push_back({.name = "all_to_all of pairs", .kind = OperationKind::kAllToAll});
  return calls;
}

}  // namespace kolo::test
