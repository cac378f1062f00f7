#include "comm/native/group_factory.h"

#include <utility>

#include "comm/base/error.h"

#if KOLO_NCCL
#include "comm/device/cuda_device.h"
#include "comm/native/nccl_connector.h"
#include "comm/native/nccl_group.h"
#endif

namespace kolo {

#if KOLO_NCCL

DeviceGroups connect_groups(Rendezvous& rendezvous, const ProcessGrid& grid, Device& device,
                            std::chrono::milliseconds deadline) {
  const auto* const gpu = dynamic_cast<const CudaDevice*>(&device);
  if (gpu == nullptr) {
    throw KoloError({.code = ErrorCode::kConfig,
                     .what = "collectives among devices need NCCL, which needs GPUs, but this rank "
                             "computes on " +
                             device.describe()});
  }
  auto world = NcclGroup::connect(rendezvous, gpu->index(), deadline);
  auto node = world->split(grid.node(rendezvous.rank()));
  // No rank continues before all are connected.
  rendezvous.all_gather("");
  return {.node = std::move(node),
          .world = std::move(world),
          .connector = std::make_unique<NcclConnector>(gpu->index(), deadline)};
}

#else

DeviceGroups connect_groups(Rendezvous&, const ProcessGrid&, Device&, std::chrono::milliseconds) {
  throw KoloError(
      {.code = ErrorCode::kConfig,
       .what = "collectives among devices need NCCL, but this build of Kolo has none; configure it "
               "with -DKOLO_WITH_CUDA=ON -DKOLO_WITH_NCCL=ON"});
}

#endif

}  // namespace kolo
