#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "comm/base/span.h"
#include "comm/device/device_kernels.h"
#include "comm/device/kernels/access.h"
#include "comm/kernels/host_device.h"

/// Top-k on a CUDA device, with its parts: the search for the k-th largest magnitude digit by
/// digit, and the layout of the workspace.
namespace kolo {

/// Checks the arguments of `DeviceKernels::top_k`, for all implementations. Errors: UsageError.
void check_top_k(const TopK& task, Span<const std::byte> workspace);

/// Runs `task` on the processor, in memory that it can access. This function defines the bits of
/// all implementations of `DeviceKernels::top_k`; a host device uses it.
void top_k_on_host(const TopK& task);

/// Enqueues `DeviceKernels::top_k` on a cudaStream_t of the current device.
///
/// Threads: as for Stream. Errors: those of `check_top_k`; KoloError(kInternal) if a launch is
///          refused.
/// Cost:    12 bytes per element, or 20 with momentum, to fold and count the first digit, 4 to
///          collect the survivors, then passes over the survivors only. Six launches.
/// Source:  radix select as in Alabi et al., ACM JEA 17, 2012, with ordered compaction.
void launch_top_k(const TopK& task, Span<std::byte> workspace, void* cuda_stream);

namespace radix {

/// The digits of a 31-bit key, from the highest down. The first digit holds the exponent and four
/// bits of the fraction, so few gradients have the same first digit as the threshold.
struct Digit {
  unsigned shift;
  unsigned bits;
  KOLO_HOST_DEVICE constexpr std::uint32_t bins() const { return 1u << bits; }
  KOLO_HOST_DEVICE constexpr std::uint32_t of(std::uint32_t key) const {
    return (key >> shift) & (bins() - 1);
  }
  /// Returns the digits of `key` before this one.
  KOLO_HOST_DEVICE constexpr std::uint32_t prefix(std::uint32_t key) const {
    return key >> (shift + bits);
  }
};
inline constexpr int kDigitCount = 3;
KOLO_HOST_DEVICE constexpr Digit digit(int i) {
  return i == 0 ? Digit{19, 12} : i == 1 ? Digit{9, 10} : Digit{0, 9};
}

/// What is known of the k-th largest key after some digits: it begins with `prefix`, and `need` of
/// the keys with this prefix are among the k largest.
struct Selection {
  std::uint32_t prefix = 0;
  std::uint32_t need = 0;
};

/// The bin that holds the need-th largest element.
struct Bin {
  std::uint32_t index = 0;
  std::uint32_t need = 0;  ///< Number of its elements that are needed.
};

/// Finds the bin that holds the need-th largest element; bin i has counts[i] elements. Before: 1 <=
/// need <= the sum of all counts.
KOLO_HOST_DEVICE inline Bin find_bin(const std::uint32_t* counts, std::uint32_t bins,
                                     std::uint32_t need) {
  std::uint32_t bin = bins - 1;
  while (counts[bin] < need) need -= counts[bin--];
  return {bin, need};
}

/// Returns the selection after one more digit.
KOLO_HOST_DEVICE inline Selection refined(const Selection& selection, const Digit& next,
                                          const Bin& bin) {
  return {selection.prefix << next.bits | bin.index, bin.need};
}

/// Returns the number of elements that precede an element in the result: all elements before it
/// that are above the threshold, and the first `need` of those equal to it.
KOLO_HOST_DEVICE constexpr std::uint32_t place(std::uint32_t above, std::uint32_t equal,
                                               std::uint32_t need) {
  return above + (equal < need ? equal : need);
}

}  // namespace radix

/// The division of elements into sections, and the layout of the workspace. Pure.
///
/// One warp processes a section, in order. It writes its survivors, which are the elements that the
/// first digit does not exclude, to the section's list. If the list is too short, later passes read
/// the whole section again, which is slower and gives the same result.
struct TopKPlan {
  static constexpr std::size_t kTile = 512;  ///< Elements that a warp processes at a time.
  static constexpr std::size_t kMostSections = 16384;
  static constexpr std::size_t kSmallestSection = 4 * kTile;
  /// Number of elements of a section for each entry of its list.
  static constexpr std::size_t kSurvivorShare = 8;

  std::size_t section = 0;  ///< Elements per section; the last section may have fewer.
  std::size_t sections = 0;
  std::size_t most_survivors = 0;  ///< Capacity of a section's list.

  // Offsets of the arrays in the workspace, in bytes.
  std::size_t survivor_indices = 0;  ///< uint32 [sections, most_survivors]
  std::size_t survivor_values = 0;   ///< float32 [sections, most_survivors]
  std::size_t survivor_counts = 0;   ///< uint32 [sections]; may exceed most_survivors
  std::size_t above = 0;             ///< uint32 [sections]
  std::size_t equal = 0;             ///< uint32 [sections]
  std::size_t bytes = 0;             ///< Size of the workspace; TopKCounters are at its start.
};

/// Results of a launch for the next launch; zero at the start of each top-k.
struct TopKCounters {
  std::uint32_t
      histograms[radix::digit(0).bins() + radix::digit(1).bins() + radix::digit(2).bins()];
  std::uint32_t blocks_done[4];
  radix::Selection selections[radix::kDigitCount];  ///< The selection after each digit.
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

/// Returns the workspace in bytes for `count` elements: about a quarter of the residual.
constexpr std::size_t top_k_workspace_bytes(std::size_t count) { return plan_top_k(count).bytes; }

}  // namespace kolo
