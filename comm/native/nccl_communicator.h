#pragma once

// Only sources of the CMake target kolo_nccl may include this file.

#include <nccl.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <vector>

namespace kolo {

/// An NCCL communicator. Unless NCCL_COMM_BLOCKING is 1, it is non-blocking: NCCL works on
/// background threads, and `settle` polls the result until a deadline. A launch that returns
/// ncclInProgress has not enqueued anything yet, and may wait for the launch of a peer; until
/// `state` is another one, NCCL takes no further call (see `when_ready`). The calls of a blocking
/// communicator need no such thread, except to connect and to end: only these have a deadline. An
/// abort meanwhile begins when such a call returns.
///
/// An orderly end is `begin_end`, polling `state`, and `begin_destroy`; otherwise call
/// `begin_abort`. Without either, the NCCL object is leaked.
///
/// Threads: one. The end runs on a separate thread, which keeps the object alive, because NCCL may
/// wait for the device.
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
  Milliseconds deadline() const { return deadline_; }
  /// The NCCL handle. Null once its end has begun, or while a blocking call connects or ends it.
  ncclComm_t get() const { return is_blocked() || ended_.valid() ? nullptr : comm_; }

  /// State of the communicator: ncclSuccess, ncclInProgress or its first failure.
  ncclResult_t state() const;

  /// Returns the final result of a call that returned `result`. Blocks while it is ncclInProgress;
  /// returns ncclInProgress if the deadline passes.
  ncclResult_t settle(ncclResult_t result) const;
  /// Does the same for a launch, but with NCCL 2.27 or later only for a moment, which is enough for
  /// launches that wait for no peer.
  ncclResult_t settle_launch(ncclResult_t result) const;

  /// Calls `call`, which may call NCCL: now, or, while a launch is in progress, in
  /// `call_postponed`. `get` is null in `call` if the end of the communicator has begun.
  void when_ready(std::function<void()> call);
  void call_postponed();

  void begin_abort() noexcept;
  /// Begins the orderly end, which is complete when `state` is not ncclInProgress.
  ncclResult_t begin_end();
  /// Frees the communicator after its orderly end.
  void begin_destroy() noexcept;
  /// Blocks for at most `within`. Returns whether `begin_abort` or `begin_destroy` is complete.
  bool wait_ended(Milliseconds within) const;

 private:
  /// Calls `call`, which connects or ends this communicator; if it blocks, on a thread, which keeps
  /// this object.
  template <typename Call>
  ncclResult_t begin_call(Call call);
  bool is_blocked() const;
  ncclResult_t settle_briefly(ncclResult_t result) const;
  /// Begins to free the communicator by `end`, NCCL's function `name`.
  void begin_release(ncclResult_t (*end)(ncclComm_t), const char* name) noexcept;

  const int device_;
  const Milliseconds deadline_;
  ncclComm_t comm_ = nullptr;  ///< NCCL writes here until the communicator is connected.
  std::shared_ptr<NcclCommunicator> connecting_;  ///< The child of a `split` in progress.
  std::shared_future<ncclResult_t> blocking_;     ///< The last blocking call on a thread.
  std::vector<std::function<void()>> postponed_;  ///< See `when_ready`.
  std::future<void> ended_;                       ///< Set once an abort or destroy has begun.
};

}  // namespace kolo
