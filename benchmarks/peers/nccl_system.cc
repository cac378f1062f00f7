#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstring>
#include <utility>

#include "benchmarks/collective/caller_memory.h"
#include "benchmarks/common/exchange.h"
#include "benchmarks/peers/peers.h"
#include "comm/base/check.h"
#include "comm/device/cuda_device.h"
#include "comm/device/cuda_stream.h"
#include "comm/native/nccl_handles.h"
#include "comm/native/nccl_library.h"

namespace kolo::bench {
namespace {

struct CommTraits {
  using Value = ncclComm_t;
  static Value invalid() noexcept { return nullptr; }
  static void close(Value comm) noexcept {
    log_nccl(nccl().ncclCommDestroy(comm), "ncclCommDestroy");
  }
};
using Comm = UniqueHandle<CommTraits>;

/// Returns the index of the CUDA device that holds the memory of `device`.
int cuda_index(Device& device) {
  const DeviceMemory probe = device.allocate(1, MemoryKind::kDevice);
  cudaPointerAttributes attributes{};
  require_cuda(cudaPointerGetAttributes(&attributes, probe.data()), "cudaPointerGetAttributes");
  return attributes.device;
}

Comm connect(Runtime& runtime) {
  ncclUniqueId id{};
  if (runtime.rank() == 0) require_nccl(nccl().ncclGetUniqueId(&id), nullptr, "ncclGetUniqueId");
  const std::string mine =
      runtime.rank() == 0 ? std::string(id.internal, sizeof(id.internal)) : std::string();
  const std::string theirs = all_gather(runtime, "NCCL's id", mine).front();
  std::memcpy(id.internal, theirs.data(), sizeof(id.internal));
  ncclComm_t comm = nullptr;
  require_nccl(
      nccl().ncclCommInitRankConfig(&comm, runtime.world_size(), id, runtime.rank(), nullptr),
      nullptr, "ncclCommInitRankConfig");
  return Comm(comm);
}

/// A run of one of NCCL's collectives, or of sends and receives in one launch.
class NcclRun final : public MemoryRun {
 public:
  NcclRun(ncclComm_t comm, int index, Runtime& runtime, Device& device, const CollectiveCase& what)
      : MemoryRun(
            {what, counts_of(what, runtime.rank(), runtime.world_size()), device_place(device)},
            "default"),
        comm_(comm),
        index_(index),
        rank_(runtime.rank()),
        ranks_(runtime.world_size()),
        what_(what),
        dtype_(to_nccl(what.dtype)),
        spec_(what.spec(ranks_)),
        counts_(counts_of(what, rank_, ranks_)),
        stream_([&] {
          const CudaDeviceGuard guard(index);
          return make_cuda_stream();
        }()) {}

  void run() override {
    const CudaDeviceGuard guard(index_);
    launch();
    require_cuda(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
  }

 private:
  static constexpr int kRoot = 0;

  void launch() {
    void* const in = memory_.contribution();
    void* const out = memory_.result();
    const cudaStream_t stream = stream_.get();
    switch (what_.verb) {
      case Verb::kAllReduce:
        return check_call(
            nccl().ncclAllReduce(in, out, what_.count(), dtype_, op(), comm_, stream));
      case Verb::kReduce:
        return check_call(
            nccl().ncclReduce(in, out, what_.count(), dtype_, op(), kRoot, comm_, stream));
      case Verb::kReduceScatter:
        return check_call(
            nccl().ncclReduceScatter(in, out, counts_.received, dtype_, op(), comm_, stream));
      case Verb::kAllGather:
        return check_call(
            nccl().ncclAllGather(in, out, counts_.contributed, dtype_, comm_, stream));
      case Verb::kBroadcast:
        return check_call(
            nccl().ncclBroadcast(in, out, what_.count(), dtype_, kRoot, comm_, stream));
      case Verb::kSendRecv:
        return ping_pong();
      case Verb::kGather:
      case Verb::kScatter:
      case Verb::kAllToAll:
        return exchange();
      case Verb::kSparseRows:
        break;  // NCCL does not support it
    }
  }

  /// Sends each rank's parts in the order of its buffers, except a part that the root keeps in
  /// place.
  void exchange() {
    check_call(nccl().ncclGroupStart());
    auto* in = static_cast<std::byte*>(memory_.contribution());
    auto* out = static_cast<std::byte*>(memory_.result());
    for (const CollectiveSpec::Part& part : spec_.parts()) {
      const std::size_t count = part.extent.count;
      if (what_.in_place && part.contributes(rank_) && part.receives(rank_)) {
        in += count * size_of(what_.dtype);
        out += count * size_of(what_.dtype);
        continue;
      }
      if (part.contributes(rank_)) {
        send(in, count, part.receivers.front());
        in += count * size_of(what_.dtype);
      }
      if (part.receives(rank_)) {
        receive(out, count, part.contributors.front());
        out += count * size_of(what_.dtype);
      }
    }
    check_call(nccl().ncclGroupEnd());
  }

  /// Sends a message to the partner and back; the lower rank first. A single rank sends to itself.
  void ping_pong() {
    const int peer = partner(rank_, ranks_);
    const bool is_alone = peer == rank_;
    if (is_alone) check_call(nccl().ncclGroupStart());
    if (rank_ <= peer) send(memory_.contribution(), what_.count(), peer);
    receive(memory_.result(), what_.count(), peer);
    if (rank_ > peer) send(memory_.contribution(), what_.count(), peer);
    if (is_alone) check_call(nccl().ncclGroupEnd());
  }

  void send(const void* data, std::size_t count, int peer) {
    check_call(nccl().ncclSend(data, count, dtype_, peer, comm_, stream_.get()));
  }
  void receive(void* data, std::size_t count, int peer) {
    check_call(nccl().ncclRecv(data, count, dtype_, peer, comm_, stream_.get()));
  }
  ncclRedOp_t op() const { return to_nccl(what_.op); }
  void check_call(ncclResult_t result) const { require_nccl(result, comm_, to_string(what_.verb)); }

  ncclComm_t comm_;
  int index_;
  int rank_, ranks_;
  CollectiveCase what_;
  ncclDataType_t dtype_;
  CollectiveSpec spec_;
  CaseCounts counts_;
  CudaStreamHandle stream_;
};

class NcclSystem final : public CollectiveSystem {
 public:
  NcclSystem(Runtime& runtime, Device& device)
      : runtime_(runtime), device_(device), index_(cuda_index(device)), comm_([&] {
          const CudaDeviceGuard guard(index_);
          return connect(runtime);
        }()) {}

  std::string name() const override { return "nccl"; }
  std::vector<std::unique_ptr<CollectiveRun>> prepare(const CollectiveCase& what) override {
    check(what.home == Home::kDeviceUser,
          "NCCL is measured in device memory; use --memory device-user or leave nccl out");
    if (what.verb == Verb::kAllToAll && what.in_place) {
      refuse("NCCL has no all-to-all in place; leave nccl out of --compare");
    }
    std::vector<std::unique_ptr<CollectiveRun>> runs;
    runs.push_back(std::make_unique<NcclRun>(comm_.get(), index_, runtime_, device_, what));
    return runs;
  }

 private:
  Runtime& runtime_;
  Device& device_;
  int index_;
  Comm comm_;
};

}  // namespace

std::unique_ptr<CollectiveSystem> make_nccl_system(Runtime& runtime, Device& device) {
  return std::make_unique<NcclSystem>(runtime, device);
}

}  // namespace kolo::bench
