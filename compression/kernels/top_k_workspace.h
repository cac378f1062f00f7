#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "comm/device/kernels/access.h"
#include "compression/kernels/radix_select.h"

namespace kolo {

/// How top-k on a device divides its elements, and where its intermediate results lie in the
/// workspace. Pure.
///
/// One warp works on a section, in order. It keeps its survivors, the elements that the first digit
/// does not rule out, in a list of its own. If there are too many for the list, later passes read
/// the section itself again: slower, but just as exact.
struct TopKPlan {
  static constexpr std::size_t kTile = 512;  ///< Elements that a warp handles at a time.
  static constexpr std::size_t kMostSections = 16384;
  static constexpr std::size_t kSmallestSection = 4 * kTile;
  static constexpr std::size_t kSurvivorShare = 8;  ///< A list holds one element in this many.

  std::size_t section = 0;  ///< Elements per section; the last one may have fewer.
  std::size_t sections = 0;
  std::size_t most_survivors = 0;  ///< Capacity of a section's list.

  // Offsets of arrays in the workspace, in bytes.
  std::size_t survivor_indices = 0;  ///< uint32 [sections, most_survivors]
  std::size_t survivor_values = 0;   ///< float32 [sections, most_survivors]
  std::size_t survivor_counts = 0;   ///< uint32 [sections]; may exceed most_survivors
  std::size_t above = 0;             ///< uint32 [sections]
  std::size_t equal = 0;             ///< uint32 [sections]
  std::size_t bytes = 0;             ///< Size of the workspace; counters and histograms come first.
};

/// Zero at the start of each top-k; results that the blocks of a launch leave for the next launch.
struct TopKCounters {
  std::uint32_t
      histograms[radix::digit(0).bins() + radix::digit(1).bins() + radix::digit(2).bins()];
  std::uint32_t blocks_done[4];
  radix::Selection selections[radix::kDigitCount];  ///< After each digit.
};

constexpr TopKPlan plan_top_k(std::size_t count) {
  const auto round_up = [](std::size_t value, std::size_t unit) {
    return access::ceil_divide(value, unit) * unit;
  };
  TopKPlan plan;
  plan.section =
      std::max(TopKPlan::kSmallestSection,
               round_up(access::ceil_divide(count, TopKPlan::kMostSections), TopKPlan::kTile));
  plan.sections = access::ceil_divide(count, plan.section);
  plan.most_survivors = plan.section / TopKPlan::kSurvivorShare;
  constexpr std::size_t kAlignment = 256;
  plan.bytes = round_up(sizeof(TopKCounters), kAlignment);
  const auto add = [&](std::size_t& offset, std::size_t elements) {
    offset = plan.bytes;
    plan.bytes += round_up(elements * sizeof(std::uint32_t), kAlignment);
  };
  add(plan.survivor_indices, plan.sections * plan.most_survivors);
  add(plan.survivor_values, plan.sections * plan.most_survivors);
  add(plan.survivor_counts, plan.sections);
  add(plan.above, plan.sections);
  add(plan.equal, plan.sections);
  return plan;
}

}  // namespace kolo
