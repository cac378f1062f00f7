#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/device/device_communicator.h"
#include "comm/device/freeing_thread.h"

namespace kolo {

class CudaDevice;
class NcclCommunicator;

/// A group of ranks that run collectives by NCCL. Each rank is one process with one GPU.
///
/// NCCL enqueues a call on its stream within some microseconds, for which the call waits, unless
/// NCCL must first reach peers, for example to connect to them for the first `exchange`: then
/// `is_launching` for at most `deadline`; before NCCL 2.27 the call waits as long. Most connections
/// are made at the start (NCCL_RUNTIME_CONNECT=0, unless the user has set it).
///
/// Abort:  runs on a separate thread. It frees memory, and thereby waits for all work of the GPU.
///         If two groups share a GPU, call `abort(0)` on both before waiting for one of them.
/// Source: NCCL's user guide, "Fault Tolerance" and "Creating a communicator with options".
class NcclDeviceCommunicator final : public DeviceCommunicator {
 public:
  using Milliseconds = std::chrono::milliseconds;

  /// Returns the data that `rank` sends to all ranks before they connect. That of rank 0 contains
  /// the communicator's id. Loads NCCL: see `nccl` for `library` and errors.
  static std::string introduce(int rank, const std::string& library = {});

  /// Connects `rank`, with GPU `device`, to all ranks. `introductions` holds the results of
  /// `introduce`, by rank. Collective; blocks. Errors: KoloError(kConfig) if NCCL's versions
  /// differ, kTimeout after `deadline`, kPeerLost or kInternal with NCCL's reason.
  static std::unique_ptr<NcclDeviceCommunicator> connect(std::span<const std::string> introductions,
                                                         int rank, const CudaDevice& device,
                                                         Milliseconds deadline);

  /// Connects the ranks that pass the same `color`, at least 0. Collective among all ranks of this
  /// group. Errors: those of `connect`; both groups are then aborted.
  std::unique_ptr<NcclDeviceCommunicator> split(int color);

  /// Wraps a connected communicator, whose memory `freeing` frees.
  NcclDeviceCommunicator(std::shared_ptr<NcclCommunicator> communicator,
                         std::shared_ptr<FreeingThread> freeing);
  ~NcclDeviceCommunicator() override;
  NcclDeviceCommunicator(const NcclDeviceCommunicator&) = delete;
  NcclDeviceCommunicator& operator=(const NcclDeviceCommunicator&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string describe() const override;

  DeviceMemory allocate(std::size_t bytes) override;

  void reduce_scatter(Stream& stream, const void* whole, void* part, std::size_t part_count,
                      DType dtype, ReduceOp op) override;
  void all_gather(Stream& stream, const void* part, void* whole, std::size_t part_count,
                  DType dtype) override;
  void reduce_parts(Stream& stream, std::span<const GroupTensor> tensors, DType dtype,
                    ReduceOp op) override;
  void gather_parts(Stream& stream, std::span<const GroupTensor> tensors, DType dtype) override;
  void exchange(Stream& stream, std::span<const GroupPart> sent,
                std::span<const GroupPart> received, DType dtype) override;
  void all_reduce(Stream& stream, const void* source, void* target, std::size_t count, DType dtype,
                  ReduceOp op) override;

  bool is_launching() override;
  std::optional<Error> async_error() override;
  bool abort(Milliseconds within) override;
  CommunicatorState finalize() override;

 private:
  /// Whether calls may be passed to NCCL. Errors: UsageError after `finalize`.
  bool accepts_calls() const;
  /// Enqueues `call` on `stream` unless the group has failed. Stores a failure in `failure_`.
  /// `what` is a literal.
  template <typename Call>
  void launch(Stream& stream, std::string_view what, Call&& call);
  /// Enqueues `collective` for each tensor like `launch`, in one NCCL group call.
  template <typename Collective>
  void launch_tensors(Stream& stream, std::string_view what, std::span<const GroupTensor> tensors,
                      Collective&& collective);

  // Both are shared with registered memory.
  std::shared_ptr<NcclCommunicator> communicator_;
  std::shared_ptr<FreeingThread> freeing_;
  int rank_ = 0;
  int size_ = 0;
  CommunicatorState state_ = CommunicatorState::kActive;
  std::string_view launching_;  // the call that NCCL has not enqueued yet; usually empty
  std::chrono::steady_clock::time_point give_up_;
  std::optional<Error> failure_;
};

/// Connects further groups by NCCL, each with a new communicator.
///
/// NCCL connects on a background thread, which allocates GPU memory. A group that does not connect
/// within the deadline fails with KoloError(kTimeout).
class NcclConnector final : public CommunicatorConnector {
 public:
  using Milliseconds = std::chrono::milliseconds;

  /// `device`, this rank's GPU, must outlive this object and the groups.
  NcclConnector(const CudaDevice& device, Milliseconds deadline)
      : device_(device), deadline_(deadline) {}

  std::size_t unique_id_bytes() const override;
  std::vector<std::byte> make_unique_id() override;
  std::unique_ptr<ConnectingCommunicator> connect(std::span<const std::byte> unique_id, int rank,
                                                  int size) override;

 private:
  const CudaDevice& device_;
  const Milliseconds deadline_;
};

}  // namespace kolo
