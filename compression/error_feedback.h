#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/base/aligned_memory.h"
#include "comm/base/buffer_view.h"
#include "comm/device/device.h"
#include "compression/device_feedback.h"
#include "compression/feedback_state.h"
#include "compression/kernels/top_k_selector.h"
#include "compression/payload.h"

namespace kolo {

/// True if no number of a tensor is infinite or NaN. Integers count as finite; tensors in device
/// memory are not checked and count as finite.
///
/// Threads: pure; any.
/// Cost:    one read of the tensor, at the speed of the caches.
bool all_finite(const BufferView& tensor);
bool are_finite(std::span<const float> values);

/// float32 numbers that belong to tensors and are kept between steps, such as residuals. They are
/// in one block of memory, indexed by tensor instead of bucket, so that plans may change.
///
/// Every tensor has a current and a pending copy. A step writes the pending copy. `accept` then
/// makes it the current copy; without `accept`, the current copy stays unchanged.
///
/// Threads: one thread per tensor at a time.
class ResidualStore {
 public:
  /// Sets all current copies to zero; in device memory, if `device` is not null, the caller does.
  explicit ResidualStore(std::span<const std::size_t> counts, Device* device = nullptr);

  std::span<float> current(std::size_t tensor) { return room(tensor, tensors_.at(tensor).current); }
  std::span<const float> current(std::size_t tensor) const {
    return room(tensor, tensors_.at(tensor).current);
  }
  /// Returns the pending copy; unspecified until a step writes it.
  std::span<float> pending(std::size_t tensor) {
    return room(tensor, 1 - tensors_.at(tensor).current);
  }
  void accept(std::size_t tensor) { tensors_.at(tensor).current ^= 1; }
  /// Returns the memory of all copies.
  std::span<float> all() { return {base_, 2 * floats_}; }

 private:
  struct Tensor {
    /// Offset of both copies, in floats from the start of their half of the memory.
    std::size_t offset = 0;
    std::size_t count = 0;
    std::size_t current = 0;  ///< The half that holds the current copy: 0 or 1.
  };

  std::span<float> room(std::size_t tensor, std::size_t half) const;

  std::vector<Tensor> tensors_;
  std::size_t floats_ = 0;  ///< Size of one half, in floats.
  AlignedMemory memory_;
  DeviceMemory device_memory_;
  float* base_ = nullptr;
};

/// Momentum correction of deep gradient compression: each rank accumulates a velocity u = m u + g,
/// and adds u instead of g to the residual. The optimizer's own momentum must then be off. Source:
/// Lin, Han, Mao, Wang and Dally, ICLR 2018, section 3. The velocity of an element becomes zero
/// when the element is sent, so that it is not sent again.
struct MomentumCorrection {
  float momentum = 0.9f;
};

/// Keeps the values that compression does not send, and adds them to the next gradients. Holds one
/// rank's residuals and, with momentum correction, velocities. Tensors have the indices of the
/// constructor's list.
///
/// In device memory, the functions with a stream replace those of the same name: they enqueue work
/// of a step. `commit` enqueues work, too, for which the next step waits; what reads or writes
/// state waits for copies.
///
/// A step of a tensor is `fold` (or `fold_dense`), then `commit` or `abort`. Residuals do not
/// change before `commit`: if any rank finds a number that is not finite, all ranks abort, and
/// every residual keeps its bits.
///
/// Threads: one.
/// Errors:  UsageError if the calls of a step are out of order.
/// Cost:    16 bytes of memory traffic per element and step (28 with momentum correction), 8 bytes
///          of memory per element (16). In device memory, a compressed bucket takes 8 bytes more
///          per element, because its sparse and its dense schedule each have a bucket.
class ErrorFeedback {
 public:
  explicit ErrorFeedback(std::vector<FeedbackTensor> tensors,
                         std::optional<MomentumCorrection> momentum = std::nullopt);
  /// In device memory. Steps send at most `most_pairs` pairs. Errors: KoloError(kResources).
  ErrorFeedback(std::vector<FeedbackTensor> tensors, std::optional<MomentumCorrection> momentum,
                const std::shared_ptr<FeedbackStream>& on, std::size_t most_pairs);
  ErrorFeedback(ErrorFeedback&&) = default;
  /// In device memory, waits for the last `commit`, which no other device has to join.
  ~ErrorFeedback();

  /// Adds scale * gradient to the residual and selects the k largest sums. The caller may reuse the
  /// gradient afterwards.
  SelectionReport fold(std::size_t tensor, std::span<const float> gradient, float scale,
                       std::size_t k, Pairs& selected);
  /// As `fold`, for a step that sends all sums: writes them to `sums` [count], and the residual
  /// becomes zero. Returns true if all sums are finite.
  bool fold_dense(std::size_t tensor, std::span<const float> gradient, float scale,
                  std::span<float> sums);

  /// Device memory for the result of `fold`.
  struct Selection {
    std::uint32_t* indices = nullptr;
    float* values = nullptr;
    std::uint32_t* non_finite = nullptr;  ///< Set to 1 if a sum is infinite or NaN.
  };
  /// Returns the sums, which become the residual: with k = 0, for steps as `fold_in_place`.
  std::span<float> fold(Stream& stream, std::size_t tensor, std::span<const float> gradient,
                        std::size_t k, const Selection& selected);
  /// Then adds the numbers `more`, in pinned memory, unless there are none.
  void fold_dense(Stream& stream, std::size_t tensor, std::span<float> elements,
                  std::span<const float> more = {});

  struct Sums {
    std::span<float> values = {};
    bool finite = true;  ///< True if all values are finite.
  };
  /// As `fold_dense`, for a step that sends a part of every sum. Returns the sums in memory that
  /// becomes the residual; the caller subtracts the sent values from them before `commit`.
  Sums fold_in_place(std::size_t tensor, std::span<const float> gradient, float scale);

  /// Accepts the step. `sent` holds the selected pairs that are part of the result, with their
  /// values as the receivers saw them; these are subtracted from the residual.
  void commit(std::size_t tensor, const Pairs& sent);
  /// Discards the step; residual and velocity stay unchanged.
  void abort(std::size_t tensor);
  /// Sets the residual to zero, between steps. The velocity stays.
  void drop_residual(std::size_t tensor);

  std::span<const float> residual(std::size_t tensor) const { return residuals_.current(tensor); }
  double residual_norm(std::size_t tensor) const { return norm(residuals_.current(tensor)); }
  /// Returns the Euclidean norm of numbers in the memory of residuals.
  double norm(std::span<const float> numbers) const;

  FeedbackState save() const;
  /// Errors: KoloError(kData), which names the tensor, unless the state has the same tensors, in
  /// any order, and has velocities exactly if momentum is corrected. Nothing has changed then.
  void load(const FeedbackState& state);
  /// Throws the errors of `load` without loading.
  void check_state(const FeedbackState& state) const { matching(state); }

 private:
  struct Step {
    bool open = false;
    SelectionHint hint = {};
  };
  /// Returns the momentum that computes the pending velocity from the current one; empty without
  /// momentum correction.
  FoldMomentum momentum_of(std::size_t tensor);
  Step& begin(std::size_t tensor, std::span<const float> gradient);
  bool fold_to(std::span<float> sums, std::size_t tensor, std::span<const float> gradient,
               float scale);
  Step& end(std::size_t tensor);
  TopK task_of(std::size_t tensor, std::span<const float> gradient);
  /// Copy numbers in the memory of residuals.
  std::vector<float> copy_of(std::span<const float> numbers) const;
  void copy_to(std::span<float> numbers, const std::vector<float>& from);
  void set_to_zero(std::span<float> numbers);
  const FeedbackState::Tensor& find(const FeedbackState& state, const FeedbackTensor& tensor) const;
  /// Returns the saved state of each tensor. Errors: as `load`.
  std::vector<const FeedbackState::Tensor*> matching(const FeedbackState& state) const;

  std::vector<FeedbackTensor> tensors_;
  std::optional<MomentumCorrection> momentum_;
  std::unique_ptr<FeedbackDevice> device_;  ///< Null in host memory.
  std::vector<Step> steps_;
  ResidualStore residuals_;
  std::optional<ResidualStore> velocities_;
  TopKSelector selector_;
};

}  // namespace kolo
