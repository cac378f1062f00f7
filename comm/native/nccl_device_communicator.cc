#include "comm/native/nccl_device_communicator.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "comm/base/log.h"
#include "comm/device/cuda_device.h"
#include "comm/device/cuda_stream.h"
#include "comm/native/nccl_communicator.h"
#include "comm/native/nccl_handles.h"
#include "comm/native/nccl_library.h"

namespace kolo {
namespace {

constexpr std::chrono::seconds kAbortInDestructor{5};

/// Memory of up to this size comes from CUDA. Older versions of NCCL, such as 2.19, round theirs up
/// to the granule of multicast, 512 MiB on an H100 with NVSwitch. It speeds up only large calls:
/// those of 1 MiB take hardly longer than their launch.
constexpr std::size_t kMostFromCuda = std::size_t{1} << 20;

NcclIntroduction introduced(const std::string& text) {
  return NcclIntroduction::from_bytes(std::as_bytes(std::span(text)));
}

/// Collects the results of several NCCL calls; keeps the first failure.
class Calls {
 public:
  void add(ncclResult_t result) {
    const bool failed = result != ncclSuccess && result != ncclInProgress;
    if (failed && result_ == ncclSuccess) result_ = result;
  }
  ncclResult_t result() const { return result_; }

 private:
  ncclResult_t result_ = ncclSuccess;
};

/// Submits the NCCL calls that `make_calls` makes as one group.
template <typename MakeCalls>
ncclResult_t in_one_launch(MakeCalls make_calls) {
  Calls calls;
  calls.add(nccl().ncclGroupStart());
  if (calls.result() != ncclSuccess) return calls.result();
  make_calls(calls);
  const ncclResult_t ended = nccl().ncclGroupEnd();
  return calls.result() != ncclSuccess ? calls.result() : ended;
}

bool are_equal(std::span<const std::size_t> counts) {
  return std::ranges::adjacent_find(counts, std::ranges::not_equal_to()) == counts.end();
}

/// Deleter of memory from `NcclDeviceCommunicator::allocate`, which NCCL has allocated and
/// registered if possible.
struct CommunicatorMemory {
  std::shared_ptr<NcclCommunicator> communicator;
  std::shared_ptr<FreeingThread> thread;
  bool is_from_nccl = false;
  std::shared_ptr<void*> registration = std::make_shared<void*>(nullptr);

  void operator()(void* data) const {
    close_on(communicator->device(),
             [&] { communicator->when_ready([mine = *this, data] { mine.free(data); }); });
  }

  void free(void* data) const {
    // After the communicator has ended, its registrations have ended, too.
    if (*registration != nullptr && communicator->get() != nullptr) {
      log_nccl(nccl().ncclCommDeregister(communicator->get(), *registration), "ncclCommDeregister");
    }
    thread->run([data, device = communicator->device(), from_nccl = is_from_nccl] {
      close_on(device, [=] {
        if (from_nccl) {
          wait_for_device();
          log_nccl(nccl().ncclMemFree(data), "ncclMemFree");
        } else {
          log_cuda(cudaFree(data), "cudaFree");
        }
      });
    });
  }

  /// Waits for all work of the device by freeing memory, which ncclMemFree does not wait for.
  /// cudaDeviceSynchronize would end a capture of the program.
  static void wait_for_device() {
    void* marker = nullptr;
    if (cudaMalloc(&marker, 1) != cudaSuccess) {
      (void)cudaGetLastError();  // clears the error, so that no later call reports it
      return;
    }
    log_cuda(cudaFree(marker), "cudaFree");
  }
};

}  // namespace

std::string NcclDeviceCommunicator::introduce(int rank, const std::string& library) {
  ::setenv("NCCL_RUNTIME_CONNECT", "0", 0);
  nccl(library);
  NcclIntroduction mine{.version = checked_nccl_version()};
  if (rank == 0) require_nccl(nccl().ncclGetUniqueId(&mine.id), nullptr, "ncclGetUniqueId");
  return {reinterpret_cast<const char*>(mine.bytes().data()), mine.bytes().size()};
}

std::unique_ptr<NcclDeviceCommunicator> NcclDeviceCommunicator::connect(
    std::span<const std::string> introductions, int rank, const CudaDevice& device,
    Milliseconds deadline) {
  const NcclIntroduction first = introduced(introductions.front());
  const int size = static_cast<int>(introductions.size());
  for (int other = 1; other < size; ++other) {
    const std::string& text = introductions[static_cast<std::size_t>(other)];
    check_same_nccl(first, other, introduced(text).version);
  }
  return std::make_unique<NcclDeviceCommunicator>(
      NcclCommunicator::connect(first.id, rank, size, device.index(), deadline), device.freeing());
}

std::unique_ptr<NcclDeviceCommunicator> NcclDeviceCommunicator::split(int color) {
  check(state_ == CommunicatorState::kActive && color >= 0,
        "an active group is split by colors from 0");
  return std::make_unique<NcclDeviceCommunicator>(communicator_->split(color, rank_), freeing_);
}

NcclDeviceCommunicator::NcclDeviceCommunicator(std::shared_ptr<NcclCommunicator> communicator,
                                               std::shared_ptr<FreeingThread> freeing)
    : communicator_(std::move(communicator)), freeing_(std::move(freeing)) {
  const ncclComm_t comm = communicator_->get();
  require_nccl(nccl().ncclCommUserRank(comm, &rank_), comm, "ncclCommUserRank");
  require_nccl(nccl().ncclCommCount(comm, &size_), comm, "ncclCommCount");
}

NcclDeviceCommunicator::~NcclDeviceCommunicator() {
  // The code that began an abort has already waited for its end, up to a time limit.
  const bool is_over =
      state_ == CommunicatorState::kFinalized || state_ == CommunicatorState::kAborted;
  if (!is_over) abort(kAbortInDestructor);
}

std::string NcclDeviceCommunicator::describe() const {
  return fmt::format("NCCL {}, {} rank{}", nccl_version_text(checked_nccl_version()), size_,
                     size_ == 1 ? "" : "s");
}

DeviceMemory NcclDeviceCommunicator::allocate(std::size_t bytes) {
  ensure(accepts_calls(), "memory of a group that has failed");
  const CudaDeviceGuard guard(communicator_->device());
  const std::size_t size = std::max<std::size_t>(bytes, 1);
  CommunicatorMemory memory{.communicator = communicator_, .thread = freeing_};
  void* data = nullptr;
  const auto take = [&] {
    if (size <= kMostFromCuda) return cudaMalloc(&data, size);
    const ncclResult_t allocated = nccl().ncclMemAlloc(&data, size);
    memory.is_from_nccl = allocated == ncclSuccess;
    if (memory.is_from_nccl) return cudaSuccess;
    log::debug(nccl_error(allocated, nullptr, "ncclMemAlloc, so cudaMalloc is used").to_string());
    (void)cudaGetLastError();  // clears the error, so that no later call reports it
    return cudaMalloc(&data, size);
  };
  require_cuda(allocate_patiently(*freeing_, take), fmt::format("cudaMalloc of {} bytes", size));
  communicator_->when_ready(
      [communicator = communicator_.get(), data, size, registration = memory.registration] {
        const ncclComm_t comm = communicator->get();
        if (comm == nullptr) return;
        const ncclResult_t result =
            communicator->settle(nccl().ncclCommRegister(comm, data, size, registration.get()));
        if (result == ncclSuccess) return;
        *registration = nullptr;
        log::debug(nccl_error(result, comm, "ncclCommRegister").to_string());
      });
  return DeviceMemory(data, bytes, MemoryKind::kDevice, std::move(memory));
}

bool NcclDeviceCommunicator::accepts_calls() const {
  if (failure_ || state_ == CommunicatorState::kAborted) return false;
  check(state_ == CommunicatorState::kActive, "a collective was called after the end of its group");
  return true;
}

template <typename Call>
void NcclDeviceCommunicator::launch(Stream& stream, std::string_view what, Call&& call) {
  CudaStream& cuda_stream = as_cuda(stream);
  if (!accepts_calls()) return;
  const CudaDeviceGuard guard(communicator_->device());
  const ncclComm_t comm = communicator_->get();
  const auto native = static_cast<cudaStream_t>(cuda_stream.native());
  give_up_ = std::chrono::steady_clock::now() + communicator_->deadline();
  const ncclResult_t result = communicator_->settle_launch(call(comm, native));
  if (result == ncclInProgress) {
    launching_ = what;
  } else if (result != ncclSuccess) {
    failure_ = nccl_error(result, comm, what);
  }
}

bool NcclDeviceCommunicator::is_launching() {
  if (launching_.empty()) return false;
  if (state_ == CommunicatorState::kActive && !failure_) {
    const CudaDeviceGuard guard(communicator_->device());
    const ncclResult_t result = communicator_->state();
    if (result == ncclInProgress && std::chrono::steady_clock::now() < give_up_) return true;
    if (result == ncclSuccess) {
      communicator_->call_postponed();
    } else {
      failure_ = nccl_error(result, communicator_->get(), launching_);
    }
  }
  launching_ = {};
  return false;
}

template <typename Collective>
void NcclDeviceCommunicator::launch_tensors(Stream& stream, std::string_view what,
                                            std::span<const GroupTensor> tensors,
                                            Collective&& collective) {
  launch(stream, what, [&](ncclComm_t comm, cudaStream_t native) {
    return in_one_launch([&](Calls& calls) {
      for (const GroupTensor& tensor : tensors) collective(calls, tensor, comm, native);
    });
  });
}

void NcclDeviceCommunicator::reduce_scatter(Stream& stream, const void* whole, void* part,
                                            std::size_t part_count, DType dtype, ReduceOp op) {
  launch(stream, "a reduce-scatter", [&](ncclComm_t comm, cudaStream_t native) {
    return nccl().ncclReduceScatter(whole, part, part_count, to_nccl(dtype), to_nccl(op), comm,
                                    native);
  });
}

void NcclDeviceCommunicator::all_gather(Stream& stream, const void* part, void* whole,
                                        std::size_t part_count, DType dtype) {
  launch(stream, "an all-gather", [&](ncclComm_t comm, cudaStream_t native) {
    return nccl().ncclAllGather(part, whole, part_count, to_nccl(dtype), comm, native);
  });
}

// Each tensor takes one NCCL call, or one call per part if the parts have different lengths. All
// calls are enqueued in one launch.

void NcclDeviceCommunicator::reduce_parts(Stream& stream, std::span<const GroupTensor> tensors,
                                          DType dtype, ReduceOp op) {
  const auto reduce = [&](Calls& calls, const GroupTensor& tensor, ncclComm_t comm,
                          cudaStream_t native) {
    if (are_equal(tensor.counts)) {
      if (tensor.counts.front() == 0) return;
      calls.add(nccl().ncclReduceScatter(tensor.source, tensor.target, tensor.counts.front(),
                                         to_nccl(dtype), to_nccl(op), comm, native));
      return;
    }
    const auto* next = static_cast<const std::byte*>(tensor.source);
    for (int root = 0; root < size_; ++root) {
      const std::size_t count = tensor.counts[static_cast<std::size_t>(root)];
      if (count == 0) continue;
      calls.add(nccl().ncclReduce(next, root == rank_ ? tensor.target : nullptr, count,
                                  to_nccl(dtype), to_nccl(op), root, comm, native));
      next += count * size_of(dtype);
    }
  };
  launch_tensors(stream, "a reduce", tensors, reduce);
}

void NcclDeviceCommunicator::gather_parts(Stream& stream, std::span<const GroupTensor> tensors,
                                          DType dtype) {
  const auto gather = [&](Calls& calls, const GroupTensor& tensor, ncclComm_t comm,
                          cudaStream_t native) {
    if (are_equal(tensor.counts)) {
      if (tensor.counts.front() == 0) return;
      calls.add(nccl().ncclAllGather(tensor.source, tensor.target, tensor.counts.front(),
                                     to_nccl(dtype), comm, native));
      return;
    }
    auto* next = static_cast<std::byte*>(tensor.target);
    for (int root = 0; root < size_; ++root) {
      const std::size_t count = tensor.counts[static_cast<std::size_t>(root)];
      if (count == 0) continue;
      calls.add(nccl().ncclBroadcast(root == rank_ ? tensor.source : next, next, count,
                                     to_nccl(dtype), root, comm, native));
      next += count * size_of(dtype);
    }
  };
  launch_tensors(stream, "a broadcast", tensors, gather);
}

void NcclDeviceCommunicator::exchange(Stream& stream, std::span<const GroupPart> sent,
                                      std::span<const GroupPart> received, DType dtype) {
  launch(stream, "an exchange", [&](ncclComm_t comm, cudaStream_t native) {
    return in_one_launch([&](Calls& calls) {
      for (std::size_t i = 0; i < sent.size(); ++i) {
        const int peer = static_cast<int>(i % static_cast<std::size_t>(size_));
        const GroupPart& to = sent[i];
        const GroupPart& from = received[i];
        if (peer == rank_ && to.count == from.count && to.data == from.data) continue;
        if (to.count > 0) {
          calls.add(nccl().ncclSend(to.data, to.count, to_nccl(dtype), peer, comm, native));
        }
        if (from.count > 0) {
          calls.add(nccl().ncclRecv(from.data, from.count, to_nccl(dtype), peer, comm, native));
        }
      }
    });
  });
}

void NcclDeviceCommunicator::all_reduce(Stream& stream, const void* source, void* target,
                                        std::size_t count, DType dtype, ReduceOp op) {
  launch(stream, "an all-reduce", [&](ncclComm_t comm, cudaStream_t native) {
    return nccl().ncclAllReduce(source, target, count, to_nccl(dtype), to_nccl(op), comm, native);
  });
}

std::optional<Error> NcclDeviceCommunicator::async_error() {
  const bool alive =
      state_ == CommunicatorState::kActive || state_ == CommunicatorState::kFinalizing;
  if (!is_launching() && alive && !failure_) {
    const ncclResult_t state = communicator_->state();
    if (state != ncclSuccess && state != ncclInProgress) {
      failure_ = nccl_error(state, communicator_->get(), "a collective");
    }
  }
  return failure_;
}

bool NcclDeviceCommunicator::abort(Milliseconds within) {
  if (state_ == CommunicatorState::kFinalized) return true;
  state_ = CommunicatorState::kAborted;
  communicator_->begin_abort();
  const bool done = communicator_->wait_ended(within);
  if (!done && within > Milliseconds::zero()) {
    log::warn(
        fmt::format("NCCL: an abort took longer than {} ms and is left behind", within.count()));
  }
  return done;
}

CommunicatorState NcclDeviceCommunicator::finalize() {
  if (is_launching()) return CommunicatorState::kFinalizing;
  if (state_ == CommunicatorState::kActive && !async_error()) {
    const ncclResult_t result = communicator_->begin_end();
    state_ = CommunicatorState::kFinalizing;
    if (result != ncclSuccess && result != ncclInProgress) {
      failure_ = nccl_error(result, communicator_->get(), "ncclCommFinalize");
    }
  }
  if (state_ == CommunicatorState::kFinalizing && !async_error() &&
      communicator_->state() == ncclSuccess) {
    if (communicator_->get() != nullptr) communicator_->begin_destroy();
    if (communicator_->wait_ended(Milliseconds::zero())) state_ = CommunicatorState::kFinalized;
  } else if (failure_) {
    abort(Milliseconds::zero());
  }
  return state_;
}

namespace {

class NcclConnectingCommunicator final : public ConnectingCommunicator {
 public:
  NcclConnectingCommunicator(std::shared_ptr<NcclCommunicator> communicator,
                             std::shared_ptr<FreeingThread> freeing,
                             std::chrono::milliseconds deadline)
      : communicator_(std::move(communicator)),
        freeing_(std::move(freeing)),
        give_up_(std::chrono::steady_clock::now() + deadline) {}
  ~NcclConnectingCommunicator() override {
    if (communicator_) communicator_->begin_abort();
  }
  NcclConnectingCommunicator(const NcclConnectingCommunicator&) = delete;
  NcclConnectingCommunicator& operator=(const NcclConnectingCommunicator&) = delete;

  std::unique_ptr<DeviceCommunicator> poll() override {
    const ncclResult_t state = communicator_->state();
    const bool is_late = std::chrono::steady_clock::now() >= give_up_;
    if (state == ncclInProgress && !is_late) return nullptr;
    require_nccl(state, communicator_->get(), "connecting the ranks of a group");
    return std::make_unique<NcclDeviceCommunicator>(std::exchange(communicator_, nullptr),
                                                    freeing_);
  }

 private:
  std::shared_ptr<NcclCommunicator> communicator_;
  const std::shared_ptr<FreeingThread> freeing_;
  const std::chrono::steady_clock::time_point give_up_;
};

}  // namespace

std::size_t NcclConnector::unique_id_bytes() const { return sizeof(NcclIntroduction); }

std::vector<std::byte> NcclConnector::make_unique_id() {
  NcclIntroduction introduction{.version = checked_nccl_version()};
  require_nccl(nccl().ncclGetUniqueId(&introduction.id), nullptr, "ncclGetUniqueId");
  const auto bytes = introduction.bytes();
  return {bytes.begin(), bytes.end()};
}

namespace {

/// Kernels of several groups wait in turn for peers, in any order, so all of them must fit a device
/// at once; see comm/device/README.md. NCCL_MAX_CTAS overrides this.
constexpr int kGroupsAtOnce = 8;

int blocks_of_group(int device) {
  int processors = 0;
  require_cuda(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device),
               "cudaDeviceGetAttribute");
  return std::max(processors / kGroupsAtOnce, 1);
}

}  // namespace

std::unique_ptr<ConnectingCommunicator> NcclConnector::connect(std::span<const std::byte> unique_id,
                                                               int rank, int size) {
  const NcclIntroduction first = NcclIntroduction::from_bytes(unique_id);
  check_same_nccl(first, rank, checked_nccl_version());
  const int index = device_.index();
  return std::make_unique<NcclConnectingCommunicator>(
      NcclCommunicator::begin(first.id, rank, size, index, deadline_, blocks_of_group(index)),
      device_.freeing(), deadline_);
}

}  // namespace kolo
