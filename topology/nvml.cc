#include "topology/nvml.h"

#include <dlfcn.h>

#include <array>
#include <utility>

namespace kolo {
namespace {

// The part of NVML's interface that Kolo uses, as declared in nvml.h, so that builds do not need
// that header. Source: NVIDIA, "NVML API Reference Guide", structures of version 2 and later.
using Status = int;
constexpr Status kSuccess = 0;
constexpr unsigned kMaxLinks = 36;
constexpr int kLinkUp = 1;
constexpr int kRemoteGpu = 0;
constexpr int kRemoteSwitch = 2;

using DeviceHandle = void*;

struct PciInfo {
  std::array<char, 16> bus_id_legacy;
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned pci_device_id;
  unsigned pci_subsystem_id;
  std::array<char, 32> bus_id;
};

struct LibraryCloser {
  void operator()(void* handle) const { ::dlclose(handle); }
};

}  // namespace

struct Nvml::Library {
  ~Library() {
    if (started) shutdown();
  }

  std::unique_ptr<void, LibraryCloser> handle;
  bool started = false;
  Status (*initialise)() = nullptr;
  Status (*shutdown)() = nullptr;
  Status (*device_at)(const char* bus_id, DeviceHandle*) = nullptr;
  Status (*link_state)(DeviceHandle, unsigned link, int* state) = nullptr;
  Status (*remote_pci)(DeviceHandle, unsigned link, void* pci_info) = nullptr;
  Status (*remote_kind)(DeviceHandle, unsigned link, int* kind) = nullptr;
};

namespace {

template <typename Function>
bool find(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(handle, name));
  return function != nullptr;
}

}  // namespace

Nvml::Nvml(std::unique_ptr<const Library> library) : library_(std::move(library)) {}
Nvml::Nvml(Nvml&&) noexcept = default;
Nvml& Nvml::operator=(Nvml&&) noexcept = default;
Nvml::~Nvml() = default;

std::optional<Nvml> Nvml::load(const char* library) {
  auto found = std::make_unique<Library>();
  found->handle.reset(::dlopen(library, RTLD_NOW | RTLD_LOCAL));
  void* const handle = found->handle.get();
  if (handle == nullptr || !find(handle, "nvmlInit_v2", found->initialise) ||
      !find(handle, "nvmlShutdown", found->shutdown) ||
      !find(handle, "nvmlDeviceGetHandleByPciBusId_v2", found->device_at) ||
      !find(handle, "nvmlDeviceGetNvLinkState", found->link_state) ||
      !find(handle, "nvmlDeviceGetNvLinkRemotePciInfo_v2", found->remote_pci) ||
      !find(handle, "nvmlDeviceGetNvLinkRemoteDeviceType", found->remote_kind)) {
    return std::nullopt;
  }
  if (found->initialise() != kSuccess) return std::nullopt;
  found->started = true;
  return Nvml(std::move(found));
}

std::vector<NvLinkEnd> Nvml::nvlinks(const std::string& address) const {
  std::vector<NvLinkEnd> ends;
  DeviceHandle device = nullptr;
  if (library_->device_at(address.c_str(), &device) != kSuccess) return ends;
  for (unsigned link = 0; link < kMaxLinks; ++link) {
    int state = 0;
    if (library_->link_state(device, link, &state) != kSuccess || state != kLinkUp) continue;
    NvLinkEnd& end = ends.emplace_back();
    PciInfo remote{};
    if (library_->remote_pci(device, link, &remote) == kSuccess) {
      remote.bus_id.back() = '\0';
      end.address = pci_address(remote.bus_id.data());
    }
    int kind = -1;
    if (library_->remote_kind(device, link, &kind) != kSuccess) continue;
    if (kind == kRemoteGpu) end.kind = NvLinkEnd::Kind::kGpu;
    if (kind == kRemoteSwitch) end.kind = NvLinkEnd::Kind::kSwitch;
  }
  return ends;
}

}  // namespace kolo
