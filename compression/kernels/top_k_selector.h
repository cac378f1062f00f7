#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compression/kernels/fold_scan.h"
#include "compression/kernels/nth_key.h"

namespace kolo {

/// One tensor's residual and gradient, and the number of sums to select.
struct FoldSelect {
  const float* residual = nullptr;
  const float* gradient = nullptr;
  float* sums = nullptr;  ///< May be `residual` or `gradient`; otherwise overlaps neither.
  float scale = 1.0f;     ///< Factor of the gradient, which undoes a loss scale.
  FoldMomentum momentum = {};
  std::size_t count = 0;
  std::size_t k = 0;
  std::uint32_t* indices = nullptr;
  float* values = nullptr;
};

/// A hint from one selection to the next of the same tensor. It affects only speed, never a bit of
/// the result. Start with the default.
struct SelectionHint {
  std::uint32_t least_key = 0;  ///< Elements with smaller keys are not expected to be among the k
                                ///< largest.
  std::uint32_t margin = std::uint32_t{1} << 20;  ///< Distance below the k-th key; 2^23 is a factor
                                                  ///< of two.
};

/// Observations of one selection.
struct SelectionReport {
  bool finite = true;          ///< No sum is infinite or NaN.
  bool rescanned = false;      ///< The hint was too high, and the sums were read again.
  std::size_t candidates = 0;  ///< Number of elements that were read twice.
};

/// Keeps the candidates above `nth.key` and the first `nth.need` at it, in order. Returns their
/// number. `to` may be `from`, or lie before it in the same memory.
std::size_t keep_largest(const Candidates& from, std::size_t count, const radix::NthKey& nth,
                         const Candidates& to);

inline constexpr std::size_t kMostTopKElements = std::size_t{1} << 31;

/// Size checks shared by every top-k. Errors: UsageError if k > count or count >=
/// kMostTopKElements.
void check_top_k(std::size_t count, std::size_t k);

/// The exact top-k of residual + scale * gradient by magnitude, usually in one pass. It keeps the
/// sums whose key is at least the hint's and selects from them. If there are fewer than k, it reads
/// the sums once more. If there are too many to keep, it cuts back to the k largest so far; later
/// sums must exceed all of these, because among equal magnitudes the lower index wins.
///
/// Shape:   residual, gradient and sums are [count]; indices and values [k].
/// After:   sums[i] (and momentum.after[i]) are those of `fold_scan`; `indices` ascend and
///          values[j] is the sum at indices[j].
/// Order:   exact; of equal magnitudes the lower index wins. NaN is above infinity, so that it is
///          sent and not lost; it comes out as the quiet NaN with positive sign and empty payload.
///          The same selection, bit for bit, for any hint and on any instruction set.
/// Threads: one thread per selector; it owns memory for 3k candidates, which grows with the largest
///          selection so far and is reused.
/// Errors:  those of `check_top_k`.
/// Cost:    12 bytes per element, and about 2k elements handled three times.
class TopKSelector {
 public:
  SelectionReport select(const FoldSelect& task, SelectionHint& hint);

 private:
  using Scan = std::size_t (*)(const FoldScan&, const Candidates&);

  /// Collects at least min(k, count) candidates whose key is at least scan.least_key, if there are
  /// that many. Returns the number of sums that passed the filter.
  std::size_t collect(Scan scan_block, FoldScan& scan, std::size_t count, std::size_t k);
  /// Reduces the candidates to their k largest, in `to`. Before: 1 <= k <= found_.
  radix::NthKey take(std::size_t k, const Candidates& to);
  Candidates candidates() { return {.indices = indices_.data(), .values = values_.data()}; }

  std::vector<std::uint32_t> indices_;
  std::vector<float> values_;
  std::vector<std::uint32_t> keys_;  ///< Scratch memory for the search of the k-th key.
  std::size_t room_ = 0;  ///< Capacity in candidates for this selection, without the slack.
  std::size_t found_ = 0;
  std::uint32_t floor_ = 0;  ///< No candidate's key is below this.
};

}  // namespace kolo
