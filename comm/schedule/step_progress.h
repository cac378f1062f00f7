#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "comm/schedule/schedule.h"
#include "comm/schedule/step.h"

namespace kolo {

/// The elements [first, first + count) of the output of a kernel step.
struct KernelPiece {
  const Step* step = nullptr;
  std::size_t first = 0;
  std::size_t count = 0;
};

/// Returns the number of bytes that a piece reads and writes.
std::size_t moved_bytes(const KernelPiece& piece, std::size_t element_bytes);

/// Work on fewer bytes stays in one thread: waking another one would take longer than it saves.
inline constexpr std::size_t kLeastSharedBytes = std::size_t{512} << 10;

/// Largest number of bytes that a piece reads and writes; larger only if one cache line per operand
/// is larger. A piece takes about 10 µs: short enough that no thread waits long for the last piece,
/// long enough that the cost of taking a piece is small.
inline constexpr std::size_t kPieceBytes = std::size_t{256} << 10;

/// Divides `whole` into pieces that several threads can process concurrently, and appends them in
/// order. Pieces have equal length except for the last. Operands that are aligned to cache lines
/// are cut at cache lines. Cuts do not change results, because kernels work element by element.
///
/// Threads: pure. Allocates nothing while `pieces` has capacity; there are at most
/// `moved_bytes(whole) / (kPieceBytes / 2) + 1` pieces.
void append_pieces(const KernelPiece& whole, std::size_t element_bytes,
                   std::vector<KernelPiece>& pieces);

/// A queue of steps, each of which enters at most once per iteration; it never wraps.
class StepQueue {
 public:
  explicit StepQueue(std::size_t capacity) : steps_(capacity) {}
  void clear() { first_ = last_ = 0; }
  bool empty() const { return first_ == last_; }
  void push(StepId step) { steps_[last_++] = step; }
  StepId front() const { return steps_[first_]; }
  StepId pop() { return steps_[first_++]; }

 private:
  std::vector<StepId> steps_;
  std::size_t first_ = 0, last_ = 0;
};

/// The kernels that are ready to run. Steps that begin or end the exposure of tensors are first:
/// they usually just write a note, which a peer may be waiting for. A kernel that `front` has
/// returned stays in front until it is popped, because it may be half done.
class KernelQueue {
 public:
  explicit KernelQueue(std::size_t capacity) : handovers_(capacity), others_(capacity) {}
  void clear() {
    handovers_.clear();
    others_.clear();
    front_ = nullptr;
  }
  bool empty() const { return handovers_.empty() && others_.empty(); }
  void push(StepId step, bool is_handover) { (is_handover ? handovers_ : others_).push(step); }
  StepId front() {
    if (front_ == nullptr) front_ = handovers_.empty() ? &others_ : &handovers_;
    return front_->front();
  }
  StepId pop() {
    const StepId step = front();
    std::exchange(front_, nullptr)->pop();
    return step;
  }

 private:
  StepQueue handovers_, others_;
  StepQueue* front_ = nullptr;  // queue of the kernel last returned by `front`
};

/// Tracks which steps of an iteration are ready to start, and how many are incomplete. A step is
/// ready when its predecessors are complete. If a step and its predecessor are both on the device,
/// the predecessor need only be enqueued, because streams and events keep the order.
///
/// Threads: one. Steady state allocates nothing.
class StepProgress {
 public:
  /// `schedule` must outlive this object.
  explicit StepProgress(const Schedule& schedule);

  /// The ready steps, in the order in which they became ready; KernelQueue puts some kernels first.
  /// The caller pops the steps that it starts.
  StepQueue messages;   ///< Ready messages, flags and kExpose steps.
  KernelQueue kernels;  ///< Ready kernels on the host.
  StepQueue launches;   ///< Ready steps on the device.

  /// Begins an iteration. Steps without predecessors become ready.
  void begin();
  /// Marks a step as complete; a step on the device only if it is tracked (see `enqueue`).
  void complete(StepId step);
  /// Marks a step on the device as enqueued. If `is_tracked`, `complete` is called for it later;
  /// otherwise it also counts as complete.
  void enqueue(StepId step, bool is_tracked);
  /// Marks the end of a device bucket's iteration as complete on the device.
  void complete_end() { --remaining_; }

  bool is_complete() const { return remaining_ == 0; }
  bool is_enqueued() const { return to_enqueue_ == 0; }

 private:
  void release(StepId step);

  const Schedule& schedule_;
  std::vector<std::uint32_t> predecessors_;              // number of predecessors
  std::vector<std::uint32_t> missing_;                   // predecessors still to wait for
  std::vector<std::vector<StepId>> successors_;          // successors that wait for completion
  std::vector<std::vector<StepId>> enqueue_successors_;  // successors that wait for enqueueing
  std::vector<bool> on_device_;                          // whether the step runs on a stream
  std::size_t device_steps_ = 0;
  std::size_t remaining_ = 0;   // incomplete steps, plus one for the end on the device
  std::size_t to_enqueue_ = 0;  // steps on the device that are not yet enqueued
};

}  // namespace kolo
