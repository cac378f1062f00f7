#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "comm/schedule/schedule.h"
#include "comm/schedule/step.h"

namespace kolo {

/// Elements [first, first + count) of what a kernel step writes.
struct KernelPiece {
  const Step* step = nullptr;
  std::size_t first = 0;
  std::size_t count = 0;
};

/// Bytes that a piece reads and writes.
std::size_t moved_bytes(const KernelPiece& piece, std::size_t element_bytes);

/// Less work than this stays in one thread: calling another costs as much.
inline constexpr std::size_t kLeastSharedBytes = std::size_t{512} << 10;

/// Bytes that a piece moves at most, unless a cache line of each operand is more: some 10 µs of
/// work, so that no thread waits long for the last one, and taking it costs little beside.
inline constexpr std::size_t kPieceBytes = std::size_t{256} << 10;

/// Appends `whole` in pieces that several threads can work on at the same time, in order: of equal
/// length but for the last, and cut at cache lines of whatever begins at one. No bit depends on
/// where it is cut, for kernels work element by element.
///
/// Threads: pure. Allocates nothing while `pieces` has room; there are at most
/// `moved_bytes(whole) / (kPieceBytes / 2) + 1`.
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

/// Kernels that are ready. Those come first that only hand tensors over: loans, and what takes an
/// offer back. They mostly cost a note, and without it a peer has nothing to do. A kernel that has
/// been looked at stays in front until it is popped, for it may be half done.
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
  StepQueue* front_ = nullptr;  // the one of the kernel that was looked at
};

/// Which steps of an iteration are ready to start, and how many are left. A step is ready when its
/// predecessors are complete; one on the device already when its predecessors there are enqueued,
/// because events keep their order.
///
/// Threads: one. Steady state allocates nothing.
class StepProgress {
 public:
  /// `schedule` outlives it.
  explicit StepProgress(const Schedule& schedule);

  /// Steps that are ready, in the order in which they became so, but for handovers. The caller pops
  /// the steps that it starts.
  StepQueue messages;   ///< Messages and flags.
  KernelQueue kernels;  ///< Kernels on the host.
  StepQueue launches;   ///< Steps on the device.

  /// An iteration begins: the steps without predecessors are ready.
  void begin();
  /// A step is complete. One on the device counts when it is enqueued, unless something off the
  /// device waits for it.
  void complete(StepId step);
  /// A step is on its stream; `is_tracked` if `complete` will be called for it.
  void enqueue(StepId step, bool is_tracked);
  /// The end of a device bucket's iteration has been reached on the device.
  void complete_end() { --remaining_; }

  bool is_complete() const { return remaining_ == 0; }
  bool is_enqueued() const { return to_enqueue_ == 0; }

 private:
  void release(StepId step);

  const Schedule& schedule_;
  std::vector<std::uint32_t> predecessors_;              // how many, by step
  std::vector<std::uint32_t> missing_;                   // predecessors not complete or enqueued
  std::vector<std::vector<StepId>> successors_;          // that wait until a step is complete
  std::vector<std::vector<StepId>> enqueue_successors_;  // that wait until it is enqueued
  std::vector<bool> on_device_;                          // by step
  std::size_t device_steps_ = 0;
  std::size_t remaining_ = 0;   // incomplete steps, and the end on the device
  std::size_t to_enqueue_ = 0;  // steps on the device
};

}  // namespace kolo
