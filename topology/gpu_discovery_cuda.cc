#include "topology/gpu_discovery.h"

#include <cuda_runtime_api.h>

#include <array>
#include <optional>

#include "topology/gpu_topology.h"
#include "topology/nvml.h"

namespace kolo {
namespace {

/// Returns CUDA's text for a failure, and clears the error for the next call.
std::string explain(cudaError_t status) {
  cudaGetLastError();
  return cudaGetErrorString(status);
}

std::string bus_address(int device) {
  std::array<char, 32> text{};
  if (cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), device) != cudaSuccess) {
    cudaGetLastError();
    return {};
  }
  return pci_address(text.data());
}

int link_attribute(cudaDeviceP2PAttr attribute, int from, int to) {
  int value = 0;
  if (cudaDeviceGetP2PAttribute(&value, attribute, from, to) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return value;
}

GpuLinks links_between(int count) {
  GpuLinks links;
  for (int from = 0; from < count; ++from) {
    std::vector<GpuLink>& row = links.emplace_back();
    for (int to = 0; to < count; ++to) {
      GpuLink& link = row.emplace_back();
      if (from == to) continue;
      link.peer_access = link_attribute(cudaDevP2PAttrAccessSupported, from, to) != 0;
      link.performance_rank = link_attribute(cudaDevP2PAttrPerformanceRank, from, to);
    }
  }
  return links;
}

}  // namespace

GpuInventory discover_gpus() {
  GpuInventory inventory;
  int count = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&count); status != cudaSuccess) {
    inventory.absence = explain(status);
    return inventory;
  }
  for (int device = 0; device < count; ++device) {
    cudaDeviceProp properties{};
    if (const cudaError_t status = cudaGetDeviceProperties(&properties, device);
        status != cudaSuccess) {
      return {.absence = explain(status)};
    }
    inventory.gpus.push_back({.name = properties.name,
                              .address = bus_address(device),
                              .compute_major = properties.major,
                              .compute_minor = properties.minor,
                              .memory_bytes = properties.totalGlobalMem});
  }
  inventory.links = links_between(count);

  const std::optional<Nvml> nvml = Nvml::load();
  if (nvml) {
    std::vector<std::vector<NvLinkEnd>> ends;
    for (const Gpu& gpu : inventory.gpus) ends.push_back(nvml->nvlinks(gpu.address));
    add_nvlinks(inventory, ends);
  }
  return inventory;
}

}  // namespace kolo
