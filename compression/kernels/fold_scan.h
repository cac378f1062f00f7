#pragma once

#include <cstddef>
#include <cstdint>

namespace kolo {

/// Momentum in the same pass: after = factor * before + scale * gradient, added to the residual.
struct FoldMomentum {
  const float* before = nullptr;  ///< Null: no momentum, scale * gradient is added.
  float* after = nullptr;         ///< May be `before`.
  float factor = 0.0f;
};

/// Elements [begin, end) of a tensor, to be folded and scanned for candidates.
struct FoldScan {
  const float* residual = nullptr;
  const float* gradient = nullptr;
  float* sums = nullptr;  ///< May be equal to `residual` or `gradient`; otherwise overlaps neither.
  float scale = 1.0f;     ///< Factor of the gradient.
  FoldMomentum momentum = {};
  std::size_t begin = 0;
  std::size_t end = 0;
  std::uint32_t least_key = 0;  ///< Smallest key of a candidate; see nth_key.h.
};

/// Output arrays for candidates. Kernels overwrite up to kCandidateSlack elements after the last
/// one.
struct Candidates {
  std::uint32_t* indices = nullptr;
  float* values = nullptr;
};
inline constexpr std::size_t kCandidateSlack = 64;

/// Computes sums[i] = accumulate(residual[i], u[i]), where u is momentum.after if there is
/// momentum, otherwise scale * gradient. The same pass appends the sums whose key is at least
/// `least_key` to `out`, in ascending order of index. Returns their number.
///
/// Shape:   `out` has room for end - begin + kCandidateSlack elements.
/// Rounding: every product and every sum is rounded; denormals are kept, and every NaN becomes the
///           canonical NaN. Results are the same on all instruction sets.
/// Threads: pure; any.
/// Cost:    one pass: 12 bytes per element, 8 more with momentum and per candidate.
std::size_t fold_scan(const FoldScan& scan, const Candidates& out);

/// Scans existing `sums` as `fold_scan` does; reads 4 bytes per element. Ignores residual,
/// gradient, scale and momentum.
std::size_t rescan(const FoldScan& scan, const Candidates& out);

/// Copies the candidates whose key is at least `least_key`, in order. Returns their number.
///
/// Shape:   `from` has `count` candidates. `to` has room for `room` elements, at least as many as
///          are kept, and nothing after them is written. `to` may be `from`.
/// Threads: pure; any.
std::size_t keep_candidates(const Candidates& from, std::size_t count, std::uint32_t least_key,
                            const Candidates& to, std::size_t room);

/// Readable versions of these functions, which define the exact results.
namespace reference {
std::size_t fold_scan(const FoldScan& scan, const Candidates& out);
std::size_t rescan(const FoldScan& scan, const Candidates& out);
std::size_t keep_candidates(const Candidates& from, std::size_t count, std::uint32_t least_key,
                            const Candidates& to, std::size_t room);
}  // namespace reference

}  // namespace kolo
