#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace kolo {

/// What one rank's error feedback carries from step to step: a part of its checkpoint.
struct FeedbackState {
  struct Tensor {
    std::string name;
    std::vector<float> residual;
    std::vector<float> velocity;  ///< Empty without momentum correction.
    friend bool operator==(const Tensor&, const Tensor&) = default;
  };
  std::vector<Tensor> tensors;
  friend bool operator==(const FeedbackState&, const FeedbackState&) = default;
};

/// As bytes of a file, in the byte order of this machine, and back, bit for bit.
/// Errors: KoloError(kData) if `bytes` is truncated or no such state.
std::vector<std::byte> to_bytes(const FeedbackState& state);
FeedbackState feedback_state_from(std::span<const std::byte> bytes);

/// The state of `new_rank` of `new_size`, from those of all old ranks in order.
///
/// A result is divided by the number of ranks, so that what counts is the sum of all states over
/// that number, and it stays: rank p's state goes to rank p mod new_size, is added there in
/// ascending p, and is multiplied by new_size / old size.
///
/// Threads: pure; any. Errors: KoloError(kData) if the ranks' tensors differ.
FeedbackState remap(std::span<const FeedbackState> old_ranks, int new_size, int new_rank);

}  // namespace kolo
