#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tests/runtime/mismatch/mismatch_job.h"

/// The collectives, and all fields in which the calls of ranks may differ.
namespace kolo::mismatch {

enum class Splits { kEqual, kAscending, kDescending };

struct CollectiveTerms {
  OperationKind kind;
  bool is_grouped = false;
  Splits splits = Splits::kEqual;
  ReduceOp op = ReduceOp::kSum;
  Scales scales = {};
  std::optional<DType> wire = {};
  std::size_t count = 12;
  DType dtype = DType::kFloat32;
  int root = 0;
  bool is_in_place = false;
  bool swaps_tensors = false;
  MemoryKind memory = MemoryKind::kHost;

  /// Returns whether the elements may be sent in a wire dtype.
  bool has_wire() const { return reduces(kind) && !has_root() && op != ReduceOp::kPremulSum; }
  Reduction reduction() const { return {op, scales, has_wire() ? wire : std::nullopt}; }
  bool has_root() const { return kolo::has_root(kind); }
};

/// Returns one call of each collective, on one tensor with equal parts.
inline const std::vector<CollectiveTerms>& plain_collectives() {
  static const std::vector<CollectiveTerms> all = [] {
    std::vector<CollectiveTerms> terms;
    for (const OperationKind kind : kAllCollectiveKinds) terms.push_back({.kind = kind});
    return terms;
  }();
  return all;
}

inline const std::vector<CollectiveTerms>& collectives() {
  static const std::vector<CollectiveTerms> all = [] {
    std::vector<CollectiveTerms> terms = plain_collectives();
    for (CollectiveTerms each : plain_collectives()) {
      each.is_grouped = true;
      terms.push_back(each);
      each.is_grouped = false;
      each.splits = Splits::kAscending;
      if (has_parts(each.kind)) terms.push_back(each);
      each.splits = Splits::kEqual;
      each.op = ReduceOp::kPremulSum;
      if (reduces(each.kind)) terms.push_back(each);
    }
    return terms;
  }();
  return all;
}

inline std::string text_of(const CollectiveTerms& terms) {
  return fmt::format("{}{}{}{}", terms.is_grouped ? "grouped " : "", call_name(terms.kind),
                     terms.splits == Splits::kAscending ? " of uneven parts" : "",
                     terms.op == ReduceOp::kPremulSum ? " premul_sum" : "");
}

/// Returns the elements of each rank's part, or of each pair's. Empty if all have `count` elements.
inline std::vector<std::size_t> split(const CollectiveTerms& terms, std::size_t count, int ranks) {
  if (!has_parts(terms.kind) || terms.splits == Splits::kEqual) return {};
  const auto n = static_cast<std::size_t>(ranks);
  std::vector<std::size_t> counts(has_pairs(terms.kind) ? n * n : n);
  // In both directions, two ranks exchange equally many elements.
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = count + 4 * (i / n + i % n);
  if (terms.splits == Splits::kDescending) std::ranges::reverse(counts);
  return counts;
}

inline std::vector<std::size_t> tensor_counts(const CollectiveTerms& terms) {
  if (!terms.is_grouped) return {terms.count};
  if (terms.swaps_tensors) return {8, terms.count};
  return {terms.count, 8};
}

/// Returns whether errors quote a hash, because there are too many parts.
inline bool is_hashed(const CollectiveTerms& terms, int ranks) {
  return split(terms, terms.count, ranks).size() * tensor_counts(terms).size() > 16;
}

using CollectiveField = Field<CollectiveTerms>;

inline const std::vector<CollectiveField>& collective_fields() {
  using Terms = CollectiveTerms;
  static const std::vector<CollectiveField> all = {
      {"shape", [](Terms& terms) { terms.count = 24; },
       [](const Terms& terms, int) { return fmt::format("[{}", terms.count); }},
      {"dtype", [](Terms& terms) { terms.dtype = DType::kFloat64; },
       [](const Terms& terms, int) { return std::string(to_string(terms.dtype)); }},
      {"op", [](Terms& terms) { terms.op = ReduceOp::kAverage; },
       [](const Terms& terms, int) { return " " + std::string(to_string(terms.op)); }},
      {"scale before", [](Terms& terms) { terms.scales.before = 2; },
       [](const Terms& terms, int) {
         return terms.scales.before == 2 ? std::string("scaled by 2 before") : std::string();
       }},
      {"scale after", [](Terms& terms) { terms.scales.after = 0.5; },
       [](const Terms& terms, int) {
         return terms.scales.after == 0.5 ? std::string("scaled by 0.5 after") : std::string();
       }},
      {"wire dtype", [](Terms& terms) { terms.wire = DType::kBFloat16; },
       [](const Terms& terms, int) {
         return terms.wire ? std::string("as bfloat16") : std::string();
       }},
      {"root", [](Terms& terms) { terms.root = 2; },
       [](const Terms& terms, int) { return fmt::format(" rank {}", terms.root); }},
      {"splits",
       [](Terms& terms) {
         terms.splits = terms.splits == Splits::kEqual ? Splits::kAscending : Splits::kDescending;
       },
       [](const Terms& terms, int ranks) {
         const std::vector<std::size_t> counts = split(terms, terms.count, ranks);
         if (counts.empty()) return std::string(" each");
         if (is_hashed(terms, ranks)) return std::string("(hash ");
         return fmt::format("[{}]", fmt::join(counts, ", "));
       }},
      {"place", [](Terms& terms) { terms.is_in_place = true; },
       [](const Terms& terms, int) {
         if (!has_pairs(terms.kind)) {
           return std::string(terms.is_in_place ? "" : " out of place");
         }
         return std::string(terms.is_in_place ? " in place" : "");
       }},
      {"memory", [](Terms& terms) { terms.memory = MemoryKind::kDevice; },
       [](const Terms& terms, int) {
         return terms.memory == MemoryKind::kDevice ? std::string(" on device") : std::string();
       }},
      {"order of tensors", [](Terms& terms) { terms.swaps_tensors = true; },
       [](const Terms& terms, int) {
         return terms.swaps_tensors ? std::string("[8] + [12]") : std::string("[12] + [8]");
       }},
      {"number of tensors", [](Terms& terms) { terms.is_grouped = !terms.is_grouped; },
       [](const Terms& terms, int ranks) {
         if (!terms.is_grouped) return std::string();
         return std::string(is_hashed(terms, ranks) ? " in 2 tensors" : "] + [");
       }},
      {"operation",
       [](Terms& terms) {
         const bool is_it = terms.kind == OperationKind::kAllReduce;
         terms = collectives()[is_it ? 1 : 0];
       },
       [](const Terms& terms, int) { return std::string(call_name(terms.kind)); }},
  };
  return all;
}

/// Returns the reason why calls with these terms do not have this field, so that ranks cannot
/// disagree about it. Empty if they have it.
inline std::string_view exemption(const CollectiveTerms& terms, std::string_view field) {
  if (field == "op" || field == "scale before" || field == "scale after") {
    if (!reduces(terms.kind)) return "it combines nothing";
    if (field == "scale before" && terms.op == ReduceOp::kPremulSum) {
      return "each rank has its own scale";
    }
  }
  if (field == "wire dtype" && !terms.has_wire()) return "nothing is cast";
  if (field == "root" && !terms.has_root()) return "it has no root";
  if (field == "splits" && !has_parts(terms.kind)) return "it has no parts";
  if (field == "place" && is_up_to_root(terms.kind)) return "it has one form only";
  if (field == "order of tensors" && !terms.is_grouped) return "it takes one tensor";
  return {};
}

}  // namespace kolo::mismatch
