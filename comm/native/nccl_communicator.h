#pragma once

// Only sources of the CMake target kolo_nccl may include this file.

#include <nccl.h>

#include <chrono>
#include <future>
#include <memory>

namespace kolo {

/// An NCCL communicator. Unless NCCL_COMM_BLOCKING is 1, it is non-blocking: NCCL works on
/// background threads, and `settle` polls the result until a deadline. Launches must be settled,
/// too: a call that returns ncclInProgress has not enqueued anything yet. The calls of a blocking
/// communicator need no such thread, except to connect and to end: only these have a deadline. An
/// abort meanwhile begins when such a call returns.
///
/// An orderly end is `begin_end`, polling `state`, and `destroy`; otherwise call `begin_abort`.
/// Without either, the NCCL object is leaked.
///
/// Threads: one. An abort runs on a separate thread, which keeps the object alive.
class NcclCommunicator : public std::enable_shared_from_this<NcclCommunicator> {
 public:
  using Milliseconds = std::chrono::milliseconds;

  /// Connects a communicator of `size` ranks, each with a GPU. Collective; blocks for at most
  /// `deadline`. Errors: those of `require_nccl`; the communicator is then aborted.
  static std::shared_ptr<NcclCommunicator> connect(const ncclUniqueId& id, int rank, int size,
                                                   int device, Milliseconds deadline);

  /// Begins to connect, without waiting. The communicator is connected when `state` is ncclSuccess.
  /// Its kernels have at most `most_blocks` blocks; 0 leaves this to NCCL.
  static std::shared_ptr<NcclCommunicator> begin(const ncclUniqueId& id, int rank, int size,
                                                 int device, Milliseconds deadline,
                                                 int most_blocks = 0);

  /// Connects the ranks that pass the same `color`, in their order in this communicator. Collective
  /// among all ranks of this communicator. Errors: those of `connect`; both are then aborted.
  std::shared_ptr<NcclCommunicator> split(int color, int rank);

  explicit NcclCommunicator(int device, Milliseconds deadline)
      : device_(device), deadline_(deadline) {}
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  int device() const { return device_; }
  /// The NCCL handle. Null after the end, once an abort has begun, or while a blocking call
  /// connects or ends it.
  ncclComm_t get() const { return is_blocked() || abort_.valid() ? nullptr : comm_; }

  /// State of the communicator: ncclSuccess, ncclInProgress or its first failure.
  ncclResult_t state() const;

  /// Returns the final result of a call that returned `result`. Blocks while it is ncclInProgress;
  /// returns ncclInProgress if the deadline passes.
  ncclResult_t settle(ncclResult_t result) const;

  void begin_abort() noexcept;
  /// Blocks for at most `within`. Returns whether the abort is complete.
  bool wait_aborted(Milliseconds within) const;

  /// Begins the orderly end, which is complete when `state` is not ncclInProgress.
  ncclResult_t begin_end();
  void destroy() noexcept;

 private:
  /// Calls `call`, which connects or ends this communicator; if it blocks, on a thread, which keeps
  /// this object.
  template <typename Call>
  ncclResult_t begin_call(Call call);
  bool is_blocked() const;

  const int device_;
  const Milliseconds deadline_;
  ncclComm_t comm_ = nullptr;  ///< NCCL writes here until the communicator is connected.
  std::shared_ptr<NcclCommunicator> connecting_;  ///< The child of a `split` in progress.
  std::shared_future<ncclResult_t> blocking_;     ///< The last blocking call on a thread.
  std::future<void> abort_;
};

}  // namespace kolo
