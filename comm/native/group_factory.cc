#include "comm/native/group_factory.h"

#include <utility>

#include "comm/base/error.h"

#if KOLO_NCCL
#include "comm/device/cuda_device.h"
#include "comm/native/nccl_device_communicator.h"
#endif

namespace kolo {

bool is_built_with_nccl() { return KOLO_NCCL != 0; }

#if KOLO_NCCL
namespace {

const CudaDevice& as_gpu(const Device& device) {
  const auto* const gpu = dynamic_cast<const CudaDevice*>(&device);
  if (gpu != nullptr) return *gpu;
  throw KoloError({.code = ErrorCode::kConfig,
                   .what = "collectives among devices need NCCL, which needs GPUs, but this rank "
                           "computes on " +
                           device.describe()});
}

}  // namespace

std::string introduce_groups(int rank, const Device& device, const std::string& library) {
  as_gpu(device);
  return NcclDeviceCommunicator::introduce(rank, library);
}

DeviceCommunicators connect_groups(std::span<const std::string> introductions, int rank,
                                   const ProcessGrid& grid, Device& device,
                                   std::chrono::milliseconds deadline) {
  const CudaDevice& gpu = as_gpu(device);
  auto world = NcclDeviceCommunicator::connect(introductions, rank, gpu, deadline);
  auto node = grid.num_nodes() > 1 ? world->split(grid.node(rank)) : nullptr;
  return {.node = std::move(node),
          .world = std::move(world),
          .connector = std::make_unique<NcclConnector>(gpu, deadline)};
}

#else
namespace {

[[noreturn]] void fail_without_nccl() {
  throw KoloError(
      {.code = ErrorCode::kConfig,
       .what = "collectives among devices need NCCL, but this build of Kolo has none; configure it "
               "with -DKOLO_WITH_CUDA=ON -DKOLO_WITH_NCCL=ON"});
}

}  // namespace

std::string introduce_groups(int, const Device&, const std::string&) { fail_without_nccl(); }

DeviceCommunicators connect_groups(std::span<const std::string>, int, const ProcessGrid&, Device&,
                                   std::chrono::milliseconds) {
  fail_without_nccl();
}

#endif

}  // namespace kolo
