#include "topology/discovery.h"

#include <hwloc.h>
#include <hwloc/distances.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <type_traits>

namespace kolo {
namespace {

struct TopologyDeleter {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using PciAttributes = decltype(hwloc_obj_attr_u::pcidev);
using Topology = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, TopologyDeleter>;

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) {
    throw std::system_error(errno, std::generic_category(), "gethostname");
  }
  return name.data();
}

/// Returns the random id of this boot, equal for the whole machine; empty if the kernel has none.
std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

Topology make_topology(const char* xml_path) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) throw std::runtime_error("cannot start hardware discovery");
  Topology topology(raw);
  if (xml_path != nullptr && hwloc_topology_set_xml(raw, xml_path) != 0) {
    throw std::runtime_error("cannot read the machine description " + std::string(xml_path));
  }
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  if (hwloc_topology_load(raw) != 0) {
    throw std::runtime_error(xml_path != nullptr
                                 ? "malformed machine description " + std::string(xml_path)
                                 : std::string("hardware discovery failed"));
  }
  return topology;
}

std::string info(hwloc_obj_t object, const char* key) {
  const char* value = hwloc_obj_get_info_by_name(object, key);
  return value != nullptr ? value : "";
}

int count_inside(hwloc_topology_t topology, hwloc_obj_t object, hwloc_obj_type_t type) {
  return hwloc_get_nbobjs_inside_cpuset_by_type(topology, object->cpuset, type);
}

template <typename Visit>
void for_each(hwloc_topology_t topology, hwloc_obj_type_t type, Visit visit) {
  for (hwloc_obj_t object = hwloc_get_next_obj_by_type(topology, type, nullptr); object != nullptr;
       object = hwloc_get_next_obj_by_type(topology, type, object)) {
    visit(object);
  }
}

std::vector<Package> packages_of(hwloc_topology_t topology) {
  std::vector<Package> packages;
  for_each(topology, HWLOC_OBJ_PACKAGE, [&](hwloc_obj_t object) {
    packages.push_back({.os_index = static_cast<int>(object->os_index),
                        .model = info(object, "CPUModel"),
                        .cores = count_inside(topology, object, HWLOC_OBJ_CORE),
                        .pus = count_inside(topology, object, HWLOC_OBJ_PU)});
  });
  return packages;
}

/// Returns a set of processors in Linux's list format, such as "0-15,32-47".
std::string list_text(hwloc_const_bitmap_t set) {
  char* raw = nullptr;
  if (set == nullptr || hwloc_bitmap_list_asprintf(&raw, set) < 0) return {};
  const std::unique_ptr<char, decltype(&std::free)> text(raw, &std::free);
  return text.get();
}

std::vector<NumaNode> numa_nodes_of(hwloc_topology_t topology) {
  std::vector<NumaNode> nodes;
  for_each(topology, HWLOC_OBJ_NUMANODE, [&](hwloc_obj_t object) {
    nodes.push_back({.os_index = static_cast<int>(object->os_index),
                     .memory_bytes = object->attr->numanode.local_memory,
                     .cores = count_inside(topology, object, HWLOC_OBJ_CORE),
                     .pus = count_inside(topology, object, HWLOC_OBJ_PU),
                     .cpus = list_text(object->cpuset)});
  });
  return nodes;
}

std::vector<std::vector<int>> numa_distances_of(hwloc_topology_t topology) {
  hwloc_distances_s* found = nullptr;
  unsigned count = 1;
  if (hwloc_distances_get_by_type(topology, HWLOC_OBJ_NUMANODE, &count, &found,
                                  HWLOC_DISTANCES_KIND_MEANS_LATENCY, 0) != 0 ||
      count == 0) {
    return {};
  }
  const std::size_t nodes = found->nbobjs;
  std::vector<std::vector<int>> distances(nodes, std::vector<int>(nodes));
  for (std::size_t a = 0; a < nodes; ++a) {
    for (std::size_t b = 0; b < nodes; ++b) {
      const hwloc_uint64_t value = found->values[a * nodes + b];
      distances.at(found->objs[a]->logical_index).at(found->objs[b]->logical_index) =
          static_cast<int>(value);
    }
  }
  hwloc_distances_release(topology, found);
  return distances;
}

char cache_kind(hwloc_obj_cache_type_t type) {
  switch (type) {
    case HWLOC_OBJ_CACHE_DATA:
      return 'd';
    case HWLOC_OBJ_CACHE_INSTRUCTION:
      return 'i';
    case HWLOC_OBJ_CACHE_UNIFIED:
      break;
  }
  return 'u';
}

std::vector<CacheKind> caches_of(hwloc_topology_t topology) {
  constexpr std::array kCacheTypes = {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE,
                                      HWLOC_OBJ_L4CACHE, HWLOC_OBJ_L5CACHE};
  std::vector<CacheKind> kinds;
  for (const hwloc_obj_type_t type : kCacheTypes) {
    for_each(topology, type, [&](hwloc_obj_t object) {
      const auto& cache = object->attr->cache;
      const char kind = cache_kind(cache.type);
      const auto known = std::find_if(kinds.begin(), kinds.end(), [&](const CacheKind& other) {
        return other.level == static_cast<int>(cache.depth) && other.kind == kind &&
               other.bytes == cache.size;
      });
      if (known != kinds.end()) {
        ++known->count;
        return;
      }
      kinds.push_back({.level = static_cast<int>(cache.depth),
                       .kind = kind,
                       .bytes = cache.size,
                       .line_bytes = cache.linesize,
                       .count = 1,
                       .pus_sharing = count_inside(topology, object, HWLOC_OBJ_PU)});
    });
  }
  return kinds;
}

/// Returns the kind of a device; nothing if Kolo does not use such devices. Source of the classes:
/// PCI Code and ID Assignment Specification, with the base class in the high byte.
std::optional<PciDevice::Kind> kind_of(unsigned pci_class) {
  constexpr unsigned kNetworkClass = 0x02;
  constexpr unsigned kDisplayClass = 0x03;
  constexpr unsigned kAcceleratorClass = 0x12;
  constexpr unsigned kInfiniBandClass = 0x0c06;
  const unsigned base = pci_class >> 8;
  if (base == kDisplayClass || base == kAcceleratorClass) return PciDevice::Kind::kGpu;
  if (base == kNetworkClass || pci_class == kInfiniBandClass) return PciDevice::Kind::kNetwork;
  return std::nullopt;
}

std::string bus_address(const PciAttributes& pci) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%04x:%02x:%02x.%01x", static_cast<unsigned>(pci.domain),
                static_cast<unsigned>(pci.bus), static_cast<unsigned>(pci.dev),
                static_cast<unsigned>(pci.func));
  return text.data();
}

int nearest_numa_node(hwloc_topology_t topology, hwloc_obj_t device) {
  const hwloc_obj_t place = hwloc_get_non_io_ancestor_obj(topology, device);
  if (place == nullptr || hwloc_bitmap_weight(place->nodeset) != 1) return -1;
  return hwloc_bitmap_first(place->nodeset);
}

/// Returns the bridges between the processor and a device, from the host bridge down.
std::vector<std::string> bridges_above(hwloc_obj_t device) {
  std::vector<std::string> bridges;
  for (hwloc_obj_t object = device->parent; object != nullptr && object->type == HWLOC_OBJ_BRIDGE;
       object = object->parent) {
    const auto& bridge = object->attr->bridge;
    if (bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI) {
      bridges.push_back(bus_address(bridge.upstream.pci));
    } else {
      std::array<char, 32> text{};
      std::snprintf(text.data(), text.size(), "host %04x:%02x",
                    static_cast<unsigned>(bridge.downstream.pci.domain),
                    static_cast<unsigned>(bridge.downstream.pci.secondary_bus));
      bridges.emplace_back(text.data());
    }
  }
  std::reverse(bridges.begin(), bridges.end());
  return bridges;
}

std::string device_name(hwloc_obj_t object) {
  const std::string vendor = info(object, "PCIVendor");
  const std::string model = info(object, "PCIDevice");
  return vendor.empty() || model.empty() ? vendor + model : vendor + " " + model;
}

std::vector<PciDevice> devices_of(hwloc_topology_t topology) {
  std::vector<PciDevice> devices;
  for (hwloc_obj_t object = hwloc_get_next_pcidev(topology, nullptr); object != nullptr;
       object = hwloc_get_next_pcidev(topology, object)) {
    const PciAttributes& pci = object->attr->pcidev;
    const std::optional<PciDevice::Kind> kind = kind_of(pci.class_id);
    if (!kind) continue;
    PciDevice device;
    device.kind = *kind;
    device.address = bus_address(pci);
    device.vendor_id = pci.vendor_id;
    device.device_id = pci.device_id;
    device.name = device_name(object);
    device.numa_node = nearest_numa_node(topology, object);
    device.bridges = bridges_above(object);
    device.link_gb_per_s = static_cast<double>(pci.linkspeed);
    devices.push_back(std::move(device));
  }
  // The system's name may be at any depth below the device, as with virtio cards.
  for (hwloc_obj_t object = hwloc_get_next_osdev(topology, nullptr); object != nullptr;
       object = hwloc_get_next_osdev(topology, object)) {
    hwloc_obj_t owner = object->parent;
    while (owner != nullptr && owner->type != HWLOC_OBJ_PCI_DEVICE) owner = owner->parent;
    if (owner == nullptr || object->name == nullptr) continue;
    const std::string address = bus_address(owner->attr->pcidev);
    const auto device = std::find_if(devices.begin(), devices.end(), [&](const PciDevice& other) {
      return other.address == address;
    });
    if (device != devices.end()) device->os_devices.emplace_back(object->name);
  }
  std::sort(devices.begin(), devices.end(),
            [](const PciDevice& a, const PciDevice& b) { return a.address < b.address; });
  return devices;
}

HardwareSnapshot snapshot(hwloc_topology_t topology) {
  const hwloc_obj_t machine = hwloc_get_root_obj(topology);
  HardwareSnapshot result;
  result.host_name = info(machine, "HostName");
  result.cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
  result.pus = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU);
  result.memory_bytes = machine->total_memory;
  result.packages = packages_of(topology);
  result.numa_nodes = numa_nodes_of(topology);
  result.numa_distances = numa_distances_of(topology);
  result.caches = caches_of(topology);
  result.devices = devices_of(topology);
  return result;
}

}  // namespace

std::string node_identity(const std::string& configured) {
  if (!configured.empty()) return configured;
  if (const char* chosen = std::getenv("KOLO_NODE_ID"); chosen != nullptr && *chosen != '\0') {
    return chosen;
  }
  return host_name() + ":" + boot_id();
}

std::string short_node_name(const std::string& identity) {
  // A boot id is a UUID: 36 characters; the ninth is the first hyphen.
  constexpr std::size_t kBootId = 36, kFirstHyphen = 8;
  const std::size_t colon = identity.rfind(':');
  if (colon == std::string::npos) return identity;
  const std::string boot = identity.substr(colon + 1);
  if (!boot.empty() && (boot.size() != kBootId || boot[kFirstHyphen] != '-')) return identity;
  const std::string host = identity.substr(0, colon);
  // An IP address as host name has no domain to remove.
  const bool is_address = host.find_first_not_of("0123456789.") == std::string::npos;
  return is_address ? host : host.substr(0, host.find('.'));
}

std::string machine_identity() {
  const std::string id = boot_id();
  return id.empty() ? host_name() : id;
}

std::string link_identity(const std::string& cards) {
  namespace fs = std::filesystem;
  const auto line_of = [](const fs::path& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
  };
  std::vector<std::string> links;
  std::error_code error;
  for (const fs::directory_entry& card : fs::directory_iterator(cards, error)) {
    // Virtual bridges and pairs of cards change although no link does, so they are skipped.
    if (!fs::exists(card.path() / "device", error)) continue;
    if (line_of(card.path() / "operstate") != "up") continue;
    links.push_back(card.path().filename().string() + " " + line_of(card.path() / "speed"));
  }
  for (const char* variable : {"UCX_TLS", "UCX_NET_DEVICES"}) {
    if (const char* value = std::getenv(variable))
      links.push_back(std::string(variable) + "=" + value);
  }
  std::sort(links.begin(), links.end());
  std::string text;
  for (const std::string& link : links) text += (text.empty() ? "" : ", ") + link;
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

HardwareSnapshot discover_hardware() {
  HardwareSnapshot result = snapshot(make_topology(nullptr).get());
  result.host_name = host_name();
  return result;
}

HardwareSnapshot hardware_from_file(const std::string& lstopo_xml_path) {
  return snapshot(make_topology(lstopo_xml_path.c_str()).get());
}

namespace {

/// The largest known value: AMD EPYC 7373X has 96 MiB for two cores of two threads each.
constexpr std::size_t kMostBytesPerThread = std::size_t{24} << 20;

/// Returns the number of processors in a list such as "0-3,8"; 0 if there is none.
std::size_t count_of(const std::string& list) {
  std::size_t count = 0;
  std::istringstream ranges(list);
  for (std::string range; std::getline(ranges, range, ',');) {
    std::istringstream numbers(range);
    std::size_t first = 0, last = 0;
    char dash = 0;
    if (!(numbers >> first)) return 0;
    if (!(numbers >> dash >> last)) last = first;
    count += last - std::min(first, last) + 1;
  }
  return count;
}

}  // namespace

// Uses the kernel's values, because the processor itself may report even more in a virtual machine.
std::size_t last_level_cache_bytes(const std::filesystem::path& cpu) {
  std::size_t most = 0;
  for (int index = 0;; ++index) {
    const std::filesystem::path cache = cpu / "cache" / ("index" + std::to_string(index));
    std::size_t kib = 0;
    if (!(std::ifstream(cache / "size") >> kib)) return most;
    std::size_t bytes = kib * 1024;
    std::string threads;
    std::ifstream(cache / "shared_cpu_list") >> threads;
    const std::size_t count = count_of(threads);
    if (count > 0) bytes = std::min(bytes, count * kMostBytesPerThread);
    most = std::max(most, bytes);
  }
}

}  // namespace kolo
