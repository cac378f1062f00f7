#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace kolo {

/// A tensor, or a part of one, that has a residual of its own on a rank.
struct FeedbackTensor {
  std::string name;
  std::size_t count = 0;
  std::size_t first = 0;  ///< Of the tensor's elements.
  friend bool operator==(const FeedbackTensor&, const FeedbackTensor&) = default;
};

/// What one rank's error feedback carries from step to step: a part of its checkpoint.
struct FeedbackState {
  struct Tensor {
    std::string name;
    std::vector<float> residual;
    std::vector<float> velocity;  ///< Empty without momentum correction.
    std::size_t first = 0;        ///< Of the tensor's elements, where this rank has a part of it.
    friend bool operator==(const Tensor&, const Tensor&) = default;
  };
  std::vector<Tensor> tensors;
  friend bool operator==(const FeedbackState&, const FeedbackState&) = default;
};

/// As bytes of a file, in the byte order of this machine, and back, bit for bit.
/// Errors: KoloError(kData) if `bytes` is truncated or no such state.
std::vector<std::byte> to_bytes(const FeedbackState& state);
FeedbackState feedback_state_from(std::span<const std::byte> bytes);

/// What one of the ranks of another job takes over.
struct FeedbackShare {
  std::vector<FeedbackTensor> tensors;  ///< That it has; in velocities, too, if those were saved.
  int position = 0;                     ///< Among the ranks that have these,
  int ranks = 1;                        ///< which are so many.
  /// New over old number of ranks where results are averages, else 1: what counts is the sum of all
  /// states over what results are divided by.
  double factor = 1;
};

/// The state of one new rank, from those of all old ranks in order. Of the old ranks that had an
/// element, the p-th one's state goes to the new one at position p mod `ranks`, is added there in
/// ascending p, and is multiplied by `factor`: nothing is lost, whatever parts of tensors the old
/// ranks had.
///
/// Threads: pure; any.
/// Errors:  KoloError(kData) that names the tensor if an element was nobody's, or only some of its
///          old ranks had a velocity.
FeedbackState remap(std::span<const FeedbackState> old_ranks, const FeedbackShare& share);

}  // namespace kolo
