#pragma once

#include <cstddef>
#include <cstdint>

namespace kolo {

/// Momentum that is accumulated in the same pass: after = factor * before + scale * gradient. The
/// residual takes `after`.
struct FoldMomentum {
  const float* before = nullptr;  ///< Null: the residual takes scale * gradient.
  float* after = nullptr;         ///< May be `before`.
  float factor = 0.0f;
};

/// Elements [begin, end) of a tensor in a selection.
struct FoldScan {
  const float* residual = nullptr;
  const float* gradient = nullptr;
  float* sums = nullptr;  ///< May be `residual` or `gradient`; otherwise overlaps neither.
  float scale = 1.0f;     ///< Factor of the gradient.
  FoldMomentum momentum = {};
  std::size_t begin = 0;
  std::size_t end = 0;
  std::uint32_t least_key = 0;  ///< Least key of a candidate; see nth_key.h.
};

/// Output of candidates. Kernels write ahead: up to kCandidateSlack elements behind the last
/// candidate are overwritten.
struct Candidates {
  std::uint32_t* indices = nullptr;
  float* values = nullptr;
};
inline constexpr std::size_t kCandidateSlack = 64;

/// sums[i] = accumulate(residual[i], gradient or momentum). The same pass appends the sums whose
/// key is at least `least_key`, in ascending order. Returns their number.
///
/// Shape:   `out` has room for end - begin + kCandidateSlack elements.
/// Rounding: every product and every sum is rounded; denormals are kept, and NaN is the canonical
///           one. The bits do not depend on the instruction set chosen at run time.
/// Threads: pure; any.
/// Cost:    one pass: 12 bytes per element, 8 more with momentum and per candidate.
std::size_t fold_scan(const FoldScan& scan, const Candidates& out);

/// As above, over existing `sums`: reads 4 bytes per element; residual, gradient, scale and
/// momentum are ignored.
std::size_t rescan(const FoldScan& scan, const Candidates& out);

/// Keeps the candidates among `count` whose key is at least `least_key`, in order. Returns their
/// number.
///
/// Shape:   `to` has room for `room` elements, not fewer than are kept, and nothing is written
///          behind them; it may be `from`.
/// Threads: pure; any.
std::size_t keep_candidates(const Candidates& from, std::size_t count, std::uint32_t least_key,
                            const Candidates& to, std::size_t room);

/// Readable forms of these functions, which define every bit.
namespace reference {
std::size_t fold_scan(const FoldScan& scan, const Candidates& out);
std::size_t rescan(const FoldScan& scan, const Candidates& out);
std::size_t keep_candidates(const Candidates& from, std::size_t count, std::uint32_t least_key,
                            const Candidates& to, std::size_t room);
}  // namespace reference

}  // namespace kolo
