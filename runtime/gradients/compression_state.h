#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "compression/feedback_state.h"
#include "fusion/wire_scale.h"

namespace kolo {

/// The state that a gradient set keeps between iterations on one rank, for its checkpoint.
struct CompressionState {
  /// State of a gradient on a 16-bit wire: its exponent, equal on all ranks, and the history that
  /// led to the exponent.
  struct Wire {
    std::string gradient;
    WireMemory memory;
    friend bool operator==(const Wire&, const Wire&) = default;
  };
  std::uint64_t step = 0;  ///< Number of the next step; it tells whether a warm-up is over.
  std::vector<Wire> wires = {};
  FeedbackState feedback = {};
  friend bool operator==(const CompressionState&, const CompressionState&) = default;
};

/// Converts the state to bytes of a file, in the byte order of this machine, and back, bit for bit.
/// Errors: KoloError(kData) if `bytes` is truncated or not such a state.
std::vector<std::byte> to_bytes(const CompressionState& state);
CompressionState compression_state_from(std::span<const std::byte> bytes);

/// Makes the state that all ranks of a new job share, everything except the feedback, from the
/// states of all old ranks in rank order. If any old rank still has to report values that did not
/// fit a wire, all new ranks report them. Pure. Errors: KoloError(kData) if the ranks' steps or
/// gradients differ, or without ranks.
CompressionState common_state(std::span<const CompressionState> old_ranks);

}  // namespace kolo
