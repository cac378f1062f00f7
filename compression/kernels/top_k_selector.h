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
  float* sums = nullptr;  ///< May be equal to `residual` or `gradient`; otherwise overlaps neither.
  float scale = 1.0f;     ///< Factor of the gradient, which removes a loss scale.
  FoldMomentum momentum = {};
  std::size_t count = 0;
  std::size_t k = 0;
  std::uint32_t* indices = nullptr;
  float* values = nullptr;
};

/// A hint from one selection of a tensor for its next selection. It affects only speed, never the
/// result. The default is a valid start.
struct SelectionHint {
  /// The next selection first considers only elements whose key is at least this.
  std::uint32_t least_key = 0;
  /// Distance of `least_key` below the k-th largest key; 2^23 is a factor of two.
  std::uint32_t margin = std::uint32_t{1} << 20;
};

/// Results of one selection besides the candidates.
struct SelectionReport {
  bool finite = true;          ///< True if no sum is infinite or NaN.
  bool rescanned = false;      ///< True if the hint was too high, so that the sums were read again.
  std::size_t candidates = 0;  ///< Number of elements that were read twice.
};

/// Copies the candidates above `nth.key` and the first `nth.need` candidates equal to it, in order.
/// Returns their number. `to` may be `from`, or precede it in the same memory.
std::size_t keep_largest(const Candidates& from, std::size_t count, const radix::NthKey& nth,
                         const Candidates& to);

inline constexpr std::size_t kMostTopKElements = std::size_t{1} << 31;

/// Checks sizes for every top-k. Errors: UsageError if k > count or count >= kMostTopKElements.
void check_top_k(std::size_t count, std::size_t k);

/// Selects the exact top-k of residual + scale * gradient by magnitude, usually in one pass. It
/// collects the sums whose key is at least the hint's, and selects from them. If there are fewer
/// than k, it reads the sums once more. If there are too many to store, it reduces them to the k
/// largest so far; later sums must then be larger than all of these, because among equal magnitudes
/// the lower index is selected.
///
/// Shape:   residual, gradient and sums are [count]; indices and values [k].
/// After:   sums[i] (and momentum.after[i]) are those of `fold_scan`; `indices` ascend and
///          values[j] is the sum at indices[j].
/// Order:   exact; of equal magnitudes the lower index is selected. NaN is above infinity, so that
///          it is sent instead of lost; it becomes the quiet NaN with positive sign and empty
///          payload. The selection is the same, bit for bit, for any hint and instruction set.
/// Threads: one thread per selector. The selector owns memory for 3k candidates of the largest
///          selection so far, and reuses it.
/// Errors:  as `check_top_k`.
/// Cost:    12 bytes per element, and about 2k elements processed three times.
class TopKSelector {
 public:
  SelectionReport select(const FoldSelect& task, SelectionHint& hint);

 private:
  using Scan = std::size_t (*)(const FoldScan&, const Candidates&);

  /// Collects at least min(k, count) candidates whose key is at least scan.least_key, if there are
  /// that many. Returns the number of sums that passed the filter.
  std::size_t collect(Scan scan_block, FoldScan& scan, std::size_t count, std::size_t k);
  /// Writes the k largest candidates to `to`. Before: 1 <= k <= found_.
  radix::NthKey take(std::size_t k, const Candidates& to);
  Candidates candidates() { return {.indices = indices_.data(), .values = values_.data()}; }

  std::vector<std::uint32_t> indices_;
  std::vector<float> values_;
  std::vector<std::uint32_t> keys_;  ///< Scratch memory for the search of the k-th largest key.
  std::size_t room_ = 0;             ///< Capacity in candidates for this selection, without slack.
  std::size_t found_ = 0;
  std::uint32_t floor_ = 0;  ///< Lower bound of all candidates' keys.
};

}  // namespace kolo
