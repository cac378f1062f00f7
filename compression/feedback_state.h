#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace kolo {

/// A tensor, or a part of one, whose residual a rank holds.
struct FeedbackTensor {
  std::string name;
  std::size_t count = 0;
  std::size_t first = 0;    ///< Index of the part's first element in the tensor.
  std::size_t columns = 1;  ///< Elements of the tensor's rows, for methods that send factors.
  friend bool operator==(const FeedbackTensor&, const FeedbackTensor&) = default;
};

/// The state that one rank's error feedback keeps between steps; a part of its checkpoint.
struct FeedbackState {
  struct Tensor {
    std::string name;
    std::vector<float> residual;
    std::vector<float> velocity;  ///< Empty without momentum correction.
    std::size_t first = 0;        ///< Index of the part's first element in the tensor.
    /// By element of the part, the residual of its sum; zero if another rank owns the sum. Empty if
    /// the method does not code sums.
    std::vector<float> of_sums = {};
    /// The right factor of the last step, with which the next one begins. Another factor, or none,
    /// changes what the next step sends, but loses nothing. Empty unless the method sends factors.
    std::vector<float> factor = {};
    friend bool operator==(const Tensor&, const Tensor&) = default;
  };
  std::vector<Tensor> tensors;
  friend bool operator==(const FeedbackState&, const FeedbackState&) = default;
};

/// Converts the state to the bytes of a file, in the byte order of this machine, and back without
/// any change. Errors: KoloError(kData) if `bytes` is truncated or is not such a state.
std::vector<std::byte> to_bytes(const FeedbackState& state);
FeedbackState feedback_state_from(std::span<const std::byte> bytes);

/// The part of another job's state that one rank of this job receives.
struct FeedbackShare {
  std::vector<FeedbackTensor> tensors;  ///< The tensors or parts that it receives.
  int position = 0;                     ///< Index of the rank among these `ranks` ranks.
  int ranks = 1;                        ///< Number of the ranks that hold these parts.
  /// The new number of ranks divided by the old number if results are averages, otherwise 1. This
  /// preserves the sum of all states divided by the divisor of results.
  double factor = 1;
};

/// Returns the state of one new rank, from the states of all old ranks in order. For each element,
/// the old ranks that hold it are numbered from p = 0. The state of old rank p is added to the new
/// rank at position p mod `ranks`, in ascending p; the sums are multiplied by `factor`. Owners'
/// residuals of sums are added to the residual, because new ranks own other elements. All old
/// state is used, whatever parts the old ranks held, except factors of other parts.
///
/// Threads: pure; any.
/// Errors:  KoloError(kData) that names the tensor if no old rank has one of its elements, or only
///          some old ranks have its velocity.
FeedbackState remap(std::span<const FeedbackState> old_ranks, const FeedbackShare& share);

}  // namespace kolo
