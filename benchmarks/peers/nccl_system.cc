#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstring>
#include <utility>

#include "benchmarks/common/exchange.h"
#include "benchmarks/peers/peer_systems.h"
#include "comm/base/check.h"
#include "comm/device/cuda_device_guard.h"
#include "comm/device/cuda_handles.h"
#include "comm/native/nccl_handles.h"

namespace kolo::bench {
namespace {

struct CommTraits {
  using Value = ncclComm_t;
  static Value invalid() noexcept { return nullptr; }
  static void close(Value comm) noexcept { log_nccl(ncclCommDestroy(comm), "ncclCommDestroy"); }
};
using Comm = UniqueHandle<CommTraits>;

/// The index of the CUDA device that holds the memory of `device`.
int cuda_index(Device& device) {
  const DeviceMemory probe = device.allocate(1, MemoryKind::kDevice);
  cudaPointerAttributes attributes{};
  require_cuda(cudaPointerGetAttributes(&attributes, probe.data()), "cudaPointerGetAttributes");
  return attributes.device;
}

Comm connect(Runtime& runtime) {
  ncclUniqueId id{};
  if (runtime.rank() == 0) require_nccl(ncclGetUniqueId(&id), nullptr, "ncclGetUniqueId");
  const std::string mine =
      runtime.rank() == 0 ? std::string(id.internal, sizeof(id.internal)) : std::string();
  const std::string theirs = all_gather(runtime, "NCCL's id", mine).front();
  std::memcpy(id.internal, theirs.data(), sizeof(id.internal));
  ncclComm_t comm = nullptr;
  require_nccl(ncclCommInitRank(&comm, runtime.world_size(), id, runtime.rank()), nullptr,
               "ncclCommInitRank");
  return Comm(comm);
}

class NcclRun final : public CollectiveRun {
 public:
  NcclRun(ncclComm_t comm, int index, Device& device, const CollectiveCase& what)
      : comm_(comm),
        index_(index),
        what_(what),
        stream_([&] {
          const CudaDeviceGuard guard(index);
          return make_cuda_stream();
        }()),
        sum_(device.allocate(what.bytes, MemoryKind::kDevice)),
        contribution_(what.in_place ? DeviceMemory()
                                    : device.allocate(what.bytes, MemoryKind::kDevice)) {}

  void write(const void* elements) override {
    copy(contribution(), elements, cudaMemcpyHostToDevice);
  }
  void read(void* elements) override { copy(elements, sum_.data(), cudaMemcpyDeviceToHost); }
  void read_contribution(void* elements) override {
    copy(elements, contribution(), cudaMemcpyDeviceToHost);
  }
  void run() override {
    const CudaDeviceGuard guard(index_);
    require_nccl(ncclAllReduce(contribution(), sum_.data(), what_.count(), to_nccl(what_.dtype),
                               to_nccl(what_.op), comm_, stream_.get()),
                 comm_, "ncclAllReduce");
    require_cuda(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
  }
  std::string algorithm() const override { return "default"; }

 private:
  void* contribution() const { return contribution_ ? contribution_.data() : sum_.data(); }
  void copy(void* target, const void* source, cudaMemcpyKind kind) {
    const CudaDeviceGuard guard(index_);
    require_cuda(cudaMemcpyAsync(target, source, what_.bytes, kind, stream_.get()),
                 "cudaMemcpyAsync");
    require_cuda(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
  }

  ncclComm_t comm_;
  int index_;
  CollectiveCase what_;
  CudaStreamHandle stream_;
  DeviceMemory sum_;
  DeviceMemory contribution_;  ///< Null in place.
};

class NcclSystem final : public CollectiveSystem {
 public:
  NcclSystem(Runtime& runtime, Device& device)
      : device_(device), index_(cuda_index(device)), comm_([&] {
          const CudaDeviceGuard guard(index_);
          return connect(runtime);
        }()) {}

  std::string name() const override { return "nccl"; }
  std::vector<std::unique_ptr<CollectiveRun>> prepare(const CollectiveCase& what) override {
    check(what.home == Home::kDeviceUser,
          "NCCL is measured in device memory; use --memory device or leave nccl out");
    std::vector<std::unique_ptr<CollectiveRun>> runs;
    runs.push_back(std::make_unique<NcclRun>(comm_.get(), index_, device_, what));
    return runs;
  }

 private:
  Device& device_;
  int index_;
  Comm comm_;
};

}  // namespace

std::unique_ptr<CollectiveSystem> make_nccl_system(Runtime& runtime, Device& device) {
  return std::make_unique<NcclSystem>(runtime, device);
}

}  // namespace kolo::bench
