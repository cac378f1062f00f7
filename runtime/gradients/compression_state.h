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
  /// A gradient on a 16-bit wire: its exponent, the same on all ranks, and the history that led to
  /// it.
  struct Wire {
    std::string gradient;
    WireMemory memory;
    friend bool operator==(const Wire&, const Wire&) = default;
  };
  std::uint64_t step = 0;  ///< The number of the next step; warm-ups count from it.
  std::vector<Wire> wires = {};
  FeedbackState feedback = {};
  friend bool operator==(const CompressionState&, const CompressionState&) = default;
};

/// Converts the state to bytes of a file, in the byte order of this machine, and back, bit for bit.
/// Errors: KoloError(kData) if `bytes` is truncated or not such a state.
std::vector<std::byte> to_bytes(const CompressionState& state);
CompressionState compression_state_from(std::span<const std::byte> bytes);

/// The part of the state that is equal on all ranks of a new job, from the states of all old ranks
/// in rank order: everything except the feedback. If an old rank had not yet reported a wire, every
/// new rank reports it. Pure. Errors: KoloError(kData) if the ranks' steps or gradients differ, or
/// there are none.
CompressionState common_state(std::span<const CompressionState> old_ranks);

}  // namespace kolo
