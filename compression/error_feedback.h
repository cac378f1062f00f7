#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "comm/base/aligned_memory.h"
#include "comm/base/buffer_view.h"
#include "compression/feedback_state.h"
#include "compression/kernels/top_k_selector.h"
#include "compression/payload.h"

namespace kolo {

/// True if no number of a tensor is infinite or NaN. Integers are finite; device memory is not
/// checked.
///
/// Threads: pure; any.
/// Cost:    one read of the tensor, at the speed of the caches.
bool all_finite(const BufferView& tensor);
bool are_finite(std::span<const float> values);

/// float32 numbers that belong to tensors and outlive steps, such as residuals. They are stored in
/// one piece of memory, indexed by tensor and never by bucket, so plans may change.
///
/// Every tensor has two rooms, the current one and a pending one. A step writes the pending room
/// and then either accepts it, which swaps the rooms, or drops it, which leaves every bit
/// unchanged.
///
/// Threads: one thread per tensor at a time.
class ResidualArena {
 public:
  /// All current rooms are zero.
  explicit ResidualArena(std::span<const std::size_t> counts);

  std::span<float> current(std::size_t tensor) { return room(tensor, tensors_.at(tensor).current); }
  std::span<const float> current(std::size_t tensor) const {
    return room(tensor, tensors_.at(tensor).current);
  }
  /// The pending room; unspecified until a step writes it.
  std::span<float> pending(std::size_t tensor) {
    return room(tensor, 1 - tensors_.at(tensor).current);
  }
  void accept(std::size_t tensor) { tensors_.at(tensor).current ^= 1; }

 private:
  struct Tensor {
    std::size_t offset =
        0;  ///< Offset of both rooms, in floats from the start of their half of the memory.
    std::size_t count = 0;
    std::size_t current = 0;  ///< 0 or 1.
  };

  std::span<float> room(std::size_t tensor, std::size_t half) const;

  std::vector<Tensor> tensors_;
  std::size_t floats_ = 0;  ///< Size of one half.
  AlignedMemory memory_;
};

/// Momentum of deep gradient compression: each rank accumulates a velocity u = m u + g, and the
/// residual takes u instead of g. The optimizer's own momentum is then off. Source: Lin, Han, Mao,
/// Wang and Dally, ICLR 2018, section 3. Sent values leave the velocity too, so that they are not
/// sent again later.
struct MomentumCorrection {
  float momentum = 0.9f;
};

/// Keeps the values that compression did not send, and sends them later. Holds one rank's
/// residuals, and velocities with momentum correction; tensors are numbered once.
///
/// A step of a tensor is `fold` (or `fold_dense`), then `commit` or `abort`. Nothing changes before
/// `commit`: if any rank finds a number that is not finite, all abort, and no residual has lost a
/// bit.
///
/// Threads: one.
/// Errors:  UsageError for a step out of this order.
/// Cost:    16 bytes of memory traffic per element and step (28 with momentum correction), 8 bytes
///          of memory per element (16).
class ErrorFeedback {
 public:
  explicit ErrorFeedback(std::vector<FeedbackTensor> tensors,
                         std::optional<MomentumCorrection> momentum = std::nullopt);

  /// Adds residual and scale * gradient and selects the k largest sums. The gradient may change
  /// afterwards.
  SelectionReport fold(std::size_t tensor, std::span<const float> gradient, float scale,
                       std::size_t k, Pairs& selected);
  /// As `fold`, for a step that sends everything: `sums` is [count], and the residual becomes zero.
  /// Returns true if all sums are finite.
  bool fold_dense(std::size_t tensor, std::span<const float> gradient, float scale,
                  std::span<float> sums);

  /// Accepts the step. `sent`, the selected pairs that are part of the result, with their values as
  /// the receivers saw them, leave the residual.
  void commit(std::size_t tensor, const Pairs& sent);
  /// Discards the step.
  void abort(std::size_t tensor);
  /// Between steps: discards the residuals. Velocities stay.
  void drop_residual(std::size_t tensor);

  std::span<const float> residual(std::size_t tensor) const { return residuals_.current(tensor); }
  double residual_norm(std::size_t tensor) const;

  FeedbackState save() const;
  /// Errors: KoloError(kData) naming the tensor, unless the state has the same tensors, in any
  ///         order, and velocities exactly if momentum is corrected; nothing has changed then.
  void load(const FeedbackState& state);
  /// Only checks; throws the errors of `load`.
  void check_state(const FeedbackState& state) const { matching(state); }

 private:
  struct Step {
    bool open = false;
    SelectionHint hint = {};
  };
  /// The momentum that makes the pending velocity from the current one; empty without momentum.
  FoldMomentum momentum_of(std::size_t tensor);
  Step& begin(std::size_t tensor, std::span<const float> gradient);
  Step& end(std::size_t tensor);
  const FeedbackState::Tensor& find(const FeedbackState& state, const FeedbackTensor& tensor) const;
  /// The saved state of each tensor. Errors: as `load`.
  std::vector<const FeedbackState::Tensor*> matching(const FeedbackState& state) const;

  std::vector<FeedbackTensor> tensors_;
  std::optional<MomentumCorrection> momentum_;
  std::vector<Step> steps_;
  ResidualArena residuals_;
  std::optional<ResidualArena> velocities_;
  TopKSelector selector_;
};

}  // namespace kolo
