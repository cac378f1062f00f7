#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "comm/schedule/schedule.h"
#include "comm/schedule/step.h"

namespace kolo {

/// Elements [first, first + count) of the output of a kernel step.
struct KernelPiece {
  const Step* step = nullptr;
  std::size_t first = 0;
  std::size_t count = 0;
};

/// Bytes that a piece reads and writes.
std::size_t moved_bytes(const KernelPiece& piece, std::size_t element_bytes);

/// Less work than this stays in one thread, because waking another one costs as much.
inline constexpr std::size_t kLeastSharedBytes = std::size_t{512} << 10;

/// Largest number of bytes that a piece moves, if one cache line per operand is not more. It takes
/// about 10 µs, so that no thread waits long for the last piece, and taking a piece costs little in
/// comparison.
inline constexpr std::size_t kPieceBytes = std::size_t{256} << 10;

/// Appends `whole` in pieces that several threads can process concurrently, in order. Pieces have
/// equal length except for the last, and are cut at cache lines of operands that are aligned to
/// them. Cuts change no bit, because kernels work element by element.
///
/// Threads: pure. Allocates nothing while `pieces` has room; there are at most `moved_bytes(whole)
/// / (kPieceBytes / 2) + 1` pieces.
void append_pieces(const KernelPiece& whole, std::size_t element_bytes,
                   std::vector<KernelPiece>& pieces);

/// A queue of steps; each step enters at most once per iteration, so it never wraps.
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

/// Ready kernels. Those that only hand tensors over come first: exposed buffers, and steps that end
/// an exposure. They usually just write a note, and a peer may have nothing to do without it. A
/// kernel returned by `front` stays in front until it is popped, because it may be half done.
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

/// Which steps of an iteration are ready to start, and how many are incomplete. A step is ready
/// when its predecessors are complete; for a step on the device, predecessors on the device need
/// only be enqueued, because events keep their order.
///
/// Threads: one. Steady state allocates nothing.
class StepProgress {
 public:
  /// `schedule` outlives it.
  explicit StepProgress(const Schedule& schedule);

  /// Ready steps, in the order in which they became ready, except that handovers come first. The
  /// caller pops the steps that it starts.
  StepQueue messages;   ///< Messages and flags.
  KernelQueue kernels;  ///< Kernels on the host.
  StepQueue launches;   ///< Steps on the device.

  /// Begins an iteration: steps without predecessors become ready.
  void begin();
  /// Marks a step as complete. A step on the device counts as soon as it is enqueued, unless a step
  /// outside the device waits for it.
  void complete(StepId step);
  /// Marks a step as enqueued; `is_tracked` if `complete` will be called for it.
  void enqueue(StepId step, bool is_tracked);
  /// The device has reached the end of a device bucket's iteration.
  void complete_end() { --remaining_; }

  bool is_complete() const { return remaining_ == 0; }
  bool is_enqueued() const { return to_enqueue_ == 0; }

 private:
  void release(StepId step);

  const Schedule& schedule_;
  std::vector<std::uint32_t> predecessors_;              // number of predecessors, by step
  std::vector<std::uint32_t> missing_;                   // predecessors not yet complete or
                                                         // enqueued
  std::vector<std::vector<StepId>> successors_;          // successors that wait for completion
  std::vector<std::vector<StepId>> enqueue_successors_;  // successors that wait for enqueueing
  std::vector<bool> on_device_;                          // by step
  std::size_t device_steps_ = 0;
  std::size_t remaining_ = 0;   // incomplete steps, and the end on the device
  std::size_t to_enqueue_ = 0;  // steps on the device
};

}  // namespace kolo
