#pragma once

// One communicator of NCCL and its life. Only sources of kolo_nccl include this.

#include <nccl.h>

#include <chrono>
#include <future>
#include <memory>

namespace kolo {

/// A non-blocking communicator. What NCCL leaves to its own threads is waited for by polling, until
/// a deadline: so is every launch, since a call that says "in progress" has put nothing on its
/// stream yet.
///
/// It ends in one of two ways: in order by `begin_end`, polled, then `destroy`; or by
/// `begin_abort`. Destroyed before, it is left behind as it is.
///
/// Threads: one; an abort runs on a thread of its own, which keeps the object alive.
class NcclCommunicator : public std::enable_shared_from_this<NcclCommunicator> {
 public:
  using Milliseconds = std::chrono::milliseconds;

  /// A communicator of `size` ranks, on one GPU each. Collective.
  /// Errors: KoloError as `nccl_error`; it is aborted then.
  static std::shared_ptr<NcclCommunicator> connect(const ncclUniqueId& id, int rank, int size,
                                                   int device, Milliseconds deadline);

  /// One of the ranks that give the same `color`, in their order here. Collective among all ranks.
  /// Errors: as `connect`, for both communicators.
  std::shared_ptr<NcclCommunicator> split(int color, int rank);

  explicit NcclCommunicator(int device, Milliseconds deadline)
      : device_(device), deadline_(deadline) {}
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  int device() const { return device_; }
  /// Null when it has ended or an abort has begun: NCCL must not hear of it any more.
  ncclComm_t get() const { return comm_; }

  /// How the communicator is: ncclSuccess, ncclInProgress or its first failure.
  ncclResult_t state() const;

  /// The outcome of a call that returned `result`: waits while that is ncclInProgress, and returns
  /// ncclInProgress if the deadline passes.
  ncclResult_t settle(ncclResult_t result) const;

  void begin_abort() noexcept;
  /// Whether an abort that was begun is over.
  bool wait_aborted(Milliseconds within) const;

  /// Begins the orderly end; it has come when `state` is no longer ncclInProgress.
  ncclResult_t begin_end() { return ncclCommFinalize(comm_); }
  void destroy() noexcept;

 private:
  const int device_;
  const Milliseconds deadline_;
  ncclComm_t comm_ = nullptr;  ///< NCCL writes here until the communicator is connected.
  std::shared_ptr<NcclCommunicator> connecting_;  ///< What a split is making.
  std::future<void> abort_;
};

}  // namespace kolo
