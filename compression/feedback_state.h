#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace kolo {

/// A tensor, or a part of one, with its own residual on a rank.
struct FeedbackTensor {
  std::string name;
  std::size_t count = 0;
  std::size_t first = 0;  ///< Index of the part's first element in the tensor.
  friend bool operator==(const FeedbackTensor&, const FeedbackTensor&) = default;
};

/// The state that one rank's error feedback keeps between steps; a part of its checkpoint.
struct FeedbackState {
  struct Tensor {
    std::string name;
    std::vector<float> residual;
    std::vector<float> velocity;  ///< Empty without momentum correction.
    std::size_t first = 0;        ///< Index in the tensor of the part's first element.
    friend bool operator==(const Tensor&, const Tensor&) = default;
  };
  std::vector<Tensor> tensors;
  friend bool operator==(const FeedbackState&, const FeedbackState&) = default;
};

/// Converts the state to the bytes of a file, in the byte order of this machine, and back, bit for
/// bit. Errors: KoloError(kData) if `bytes` is truncated or not such a state.
std::vector<std::byte> to_bytes(const FeedbackState& state);
FeedbackState feedback_state_from(std::span<const std::byte> bytes);

/// The share of another job's state that one rank takes over.
struct FeedbackShare {
  std::vector<FeedbackTensor> tensors;  ///< The tensors taken over; with velocities, if those were
                                        ///< saved.
  int position = 0;                     ///< Its position among the ranks that have these tensors.
  int ranks = 1;                        ///< The number of those ranks.
  /// If results are averages, the new number of ranks over the old one; otherwise 1. This preserves
  /// the sum of all states divided by the divisor of results.
  double factor = 1;
};

/// The state of one new rank, from the states of all old ranks in order. Among the old ranks that
/// had an element, the state of the p-th goes to the new rank at position p mod `ranks`, is added
/// there in ascending p, and is multiplied by `factor`. Nothing is lost, whatever parts of tensors
/// the old ranks had.
///
/// Threads: pure; any.
/// Errors:  KoloError(kData) naming the tensor if no rank had an element, or only some of its old
///          ranks had a velocity.
FeedbackState remap(std::span<const FeedbackState> old_ranks, const FeedbackShare& share);

}  // namespace kolo
