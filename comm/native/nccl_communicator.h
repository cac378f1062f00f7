#pragma once

// One NCCL communicator and its life cycle. Only sources of kolo_nccl include this file.

#include <nccl.h>

#include <chrono>
#include <future>
#include <memory>

namespace kolo {

/// A non-blocking communicator. Work on NCCL's own threads is polled until a deadline. This
/// includes every launch: a call that returns "in progress" has not yet enqueued anything on its
/// stream.
///
/// It ends in one of two ways: orderly by `begin_end`, polling, then `destroy`; or by
/// `begin_abort`. If this object is destroyed without either, the NCCL object is leaked.
///
/// Threads: one; an abort runs on a thread of its own, which keeps the object alive.
class NcclCommunicator : public std::enable_shared_from_this<NcclCommunicator> {
 public:
  using Milliseconds = std::chrono::milliseconds;

  /// Connects a communicator of `size` ranks, each with a GPU. Collective. Errors: KoloError as
  /// `nccl_error`; the communicator is then aborted.
  static std::shared_ptr<NcclCommunicator> connect(const ncclUniqueId& id, int rank, int size,
                                                   int device, Milliseconds deadline);

  /// As `connect`, without waiting; `state` tells when it is connected.
  static std::shared_ptr<NcclCommunicator> begin(const ncclUniqueId& id, int rank, int size,
                                                 int device, Milliseconds deadline);

  /// Connects the ranks that pass the same `color`, in their order in this communicator. Collective
  /// among all ranks. Errors: as `connect`, for both communicators.
  std::shared_ptr<NcclCommunicator> split(int color, int rank);

  explicit NcclCommunicator(int device, Milliseconds deadline)
      : device_(device), deadline_(deadline) {}
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  int device() const { return device_; }
  /// Null after the end, or once an abort has begun: then NCCL must not be called.
  ncclComm_t get() const { return comm_; }

  /// State of the communicator: ncclSuccess, ncclInProgress or its first failure.
  ncclResult_t state() const;

  /// The final outcome of a call that returned `result`: waits while it is ncclInProgress, and
  /// returns ncclInProgress if the deadline passes.
  ncclResult_t settle(ncclResult_t result) const;

  void begin_abort() noexcept;
  /// True once the abort has finished.
  bool wait_aborted(Milliseconds within) const;

  /// Begins the orderly end, which is complete when `state` is no longer ncclInProgress.
  ncclResult_t begin_end() { return ncclCommFinalize(comm_); }
  void destroy() noexcept;

 private:
  const int device_;
  const Milliseconds deadline_;
  ncclComm_t comm_ = nullptr;  ///< NCCL writes here until the communicator is connected.
  std::shared_ptr<NcclCommunicator> connecting_;  ///< The child of a split in progress.
  std::future<void> abort_;
};

}  // namespace kolo
