#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compression/kernels/fold_scan.h"
#include "compression/kernels/nth_key.h"

namespace kolo {

/// One tensor's residual and gradient, to be added up, and how many of the sums to pick.
struct FoldSelect {
  const float* residual = nullptr;
  const float* gradient = nullptr;
  float* sums = nullptr;  ///< May be `residual` or `gradient`; otherwise overlaps neither.
  float scale = 1.0f;     ///< Of the gradient: what undoes a loss scale.
  FoldMomentum momentum = {};
  std::size_t count = 0;
  std::size_t k = 0;
  std::uint32_t* indices = nullptr;
  float* values = nullptr;
};

/// What one selection of a tensor tells the next one of the same tensor. It changes speed only:
/// never a bit of the result. Start with the default.
struct SelectionHint {
  std::uint32_t least_key = 0;  ///< Elements below are expected not to be among the k.
  std::uint32_t margin = std::uint32_t{1} << 20;  ///< Below the k-th key; 2^23 is a factor of two.
};

/// What a selection met on its way.
struct SelectionReport {
  bool finite = true;          ///< No sum is infinite or NaN.
  bool rescanned = false;      ///< The hint was too high, and the sums were read once more.
  std::size_t candidates = 0;  ///< Elements that had to be looked at twice.
};

/// The exact top-k of residual + scale * gradient, usually in one pass: keeps what is at least the
/// hint's key, and picks from that. The k largest are among them if there are k at all; if not,
/// reads the sums once more. If they are too many to keep, cuts back to the k largest so far: what
/// comes later has to exceed all of these, since of equal magnitudes the lower index wins.
///
/// Shape:   residual, gradient and sums are [count]; indices and values [k].
/// After:   sums[i] (and momentum.after[i]) are those of `fold_scan`; `indices` ascend and
/// values[j] is the sum at
///          indices[j]. Order, ties and NaN as for `top_k`, whose selection this is, bit for bit,
///          for any hint and on any instruction set.
/// Threads: one thread per selector; it owns memory for 3k candidates, which grows with the
///          largest selection so far and is then reused.
/// Errors:  UsageError if k > count or count >= kMostTopKElements.
/// Cost:    12 bytes per element, and about 2k elements handled three times.
class TopKSelector {
 public:
  SelectionReport select(const FoldSelect& task, SelectionHint& hint);

 private:
  using Scan = std::size_t (*)(const FoldScan&, const Candidates&);

  /// Collects at least min(k, count) candidates whose key is at least scan.least_key, if there are
  /// so many. Returns how many passed on the way.
  std::size_t collect(Scan scan_block, FoldScan& scan, std::size_t count, std::size_t k);
  /// Reduces the candidates to their k largest, in `to`. Before: 1 <= k <= found_.
  radix::NthKey take(std::size_t k, const Candidates& to);
  Candidates candidates() { return {.indices = indices_.data(), .values = values_.data()}; }

  std::vector<std::uint32_t> indices_;
  std::vector<float> values_;
  std::vector<std::uint32_t> keys_;  ///< Scratch memory to find the k-th key in.
  std::size_t room_ = 0;             ///< Candidates of this selection, without the slack.
  std::size_t found_ = 0;
  std::uint32_t floor_ = 0;  ///< No candidate's key is below.
};

}  // namespace kolo
