#include "compression/kernels/top_k_selector.h"

#include <algorithm>

#include "comm/base/check.h"

namespace kolo {
namespace {

// Elements between two checks of the number of candidates. Each check waits for outstanding loads,
// so checks should be few; but the sums of a block should stay in a near cache.
constexpr std::size_t kBlock = 8192;
constexpr std::uint32_t kMostKey = 0x7fffffffu;

// Adapts the hint, so that 1.5 k to 2 k candidates are expected. Fewer candidates would often be
// too few in the next step; more candidates cost time.
void adapt(SelectionHint& hint, std::uint32_t kth_key, std::size_t k,
           const SelectionReport& report) {
  constexpr std::uint32_t kMostMargin = std::uint32_t{1} << 23;
  const bool had_hint = hint.least_key > 0;
  if (report.rescanned) {
    hint.margin = std::min(2 * hint.margin, kMostMargin);
  } else if (had_hint && report.candidates > 2 * k) {
    hint.margin -= hint.margin / 4;
  } else if (had_hint && report.candidates < k + k / 2) {
    hint.margin = std::min(hint.margin + hint.margin / 4 + 1, kMostMargin);
  }
  hint.least_key = kth_key > hint.margin ? kth_key - hint.margin : 0;
}

}  // namespace

void check_top_k(std::size_t count, std::size_t k) {
  check(count < kMostTopKElements, "top-k takes fewer than 2^31 elements");
  check(k <= count, "top-k cannot select more elements than there are");
}

std::size_t keep_largest(const Candidates& from, std::size_t count, const radix::NthKey& nth,
                         const Candidates& to) {
  std::size_t kept = 0;
  std::size_t equals = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t key = radix::key_of(from.values[i]);
    if (key < nth.key || (key == nth.key && equals++ >= nth.need)) continue;
    to.indices[kept] = from.indices[i];
    to.values[kept] = from.values[i];
    ++kept;
  }
  return kept;
}

radix::NthKey TopKSelector::take(std::size_t k, const Candidates& to) {
  const radix::NthKey nth = radix::nth_largest_key({values_.data(), found_}, k, floor_, keys_);
  if (nth.need == nth.equal) {
    keep_candidates(candidates(), found_, nth.key, to, k);
  } else {
    keep_largest(candidates(), found_, nth, to);
  }
  return nth;
}

std::size_t TopKSelector::collect(Scan scan_block, FoldScan& scan, std::size_t count,
                                  std::size_t k) {
  std::size_t passed = 0;
  found_ = 0;
  floor_ = scan.least_key;
  for (scan.begin = 0; scan.begin < count; scan.begin = scan.end) {
    scan.end = std::min(scan.begin + kBlock, count);
    if (found_ + (scan.end - scan.begin) > room_) {
      floor_ = take(k, candidates()).key;
      scan.least_key = floor_ + 1;
      found_ = k;
    }
    const std::size_t found =
        scan_block(scan, {.indices = indices_.data() + found_, .values = values_.data() + found_});
    found_ += found;
    passed += found;
  }
  return passed;
}

SelectionReport TopKSelector::select(const FoldSelect& task, SelectionHint& hint) {
  check_top_k(task.count, task.k);
  if (task.count == 0) return {};
  // Even if task.k is 0, the largest sum shows whether all sums are finite.
  const std::size_t k = std::max<std::size_t>(task.k, 1);
  room_ = std::min(task.count, 3 * k + 2 * kBlock);
  if (indices_.size() < room_ + kCandidateSlack) {
    indices_.resize(room_ + kCandidateSlack);
    values_.resize(room_ + kCandidateSlack);
    keys_.resize(room_ + radix::kKeySlack);
  }
  FoldScan scan{.residual = task.residual,
                .gradient = task.gradient,
                .sums = task.sums,
                .scale = task.scale,
                .momentum = task.momentum,
                .least_key = std::min(hint.least_key, kMostKey)};
  SelectionReport report;
  report.candidates = collect(fold_scan, scan, task.count, k);
  if (found_ < k) {
    report.rescanned = true;
    scan.least_key = 0;
    report.candidates += collect(rescan, scan, task.count, k);
  }
  Candidates to = candidates();
  if (task.k > 0) to = {.indices = task.indices, .values = task.values};
  const radix::NthKey nth = take(k, to);
  report.finite = nth.largest < radix::kInfinityKey;
  adapt(hint, nth.key, k, report);
  return report;
}

}  // namespace kolo
