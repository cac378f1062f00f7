#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace kolo {

/// A processor socket.
struct Package {
  int os_index = -1;
  std::string model;  ///< The name of the CPU; empty if unknown.
  int cores = 0;
  int pus = 0;  ///< Hardware threads.
};

struct NumaNode {
  int os_index = -1;
  std::size_t memory_bytes = 0;
  int cores = 0;  ///< Cores near this memory.
  int pus = 0;
  std::string cpus;  ///< OS indices of those hardware threads: "0-15,32-47".
};

/// Caches of equal level, kind and size.
struct CacheKind {
  int level = 0;
  char kind = 'u';  ///< 'u' unified, 'd' data, 'i' instructions.
  std::size_t bytes = 0;
  std::size_t line_bytes = 0;
  int count = 0;
  int pus_sharing = 0;  ///< Hardware threads that share one of them.
};

/// A GPU or a network card on the PCI bus.
struct PciDevice {
  enum class Kind : std::uint8_t { kGpu, kNetwork };
  Kind kind = Kind::kGpu;
  std::string address;  ///< "0000:3b:00.0"
  std::uint16_t vendor_id = 0;
  std::uint16_t device_id = 0;
  std::string name = {};                     ///< Vendor and model; empty if unknown.
  std::vector<std::string> os_devices = {};  ///< "eth0", "mlx5_0", "nvml0", ...
  int numa_node = -1;                        ///< OS index of the nearest memory; -1 if several are
                                             ///< equally near.
  /// From the host bridge, "host 0000:80", down to the last bridge.
  std::vector<std::string> bridges = {};
  double link_gb_per_s = 0;  ///< GB/s of its PCI link; 0 if unknown.
};

/// The hardware that this process may use, excluding processors outside its cgroup.
struct HardwareSnapshot {
  std::string host_name;
  int cores = 0;
  int pus = 0;
  std::size_t memory_bytes = 0;
  std::vector<Package> packages;
  std::vector<NumaNode> numa_nodes;
  /// By index in `numa_nodes`: relative latency from the firmware's table, 10 is local. Empty if
  /// unknown.
  std::vector<std::vector<int>> numa_distances;
  std::vector<CacheKind> caches;   ///< Ascending level.
  std::vector<PciDevice> devices;  ///< By bus address.
};

/// Identifies this machine as a node: `configured` if not empty, else KOLO_NODE_ID if set, else
/// host name and boot id. Processes with equal identity can map each other's memory. Containers on
/// one machine have separate host names and count as separate nodes.
/// Threads: any, as long as no thread changes the environment.
std::string node_identity(const std::string& configured = {});

/// The short name of a node, for people: the host name without domain and boot id, or the name
/// that KOLO_NODE_ID gave it. Pure.
std::string short_node_name(const std::string& identity);

/// Identifies this machine, independently of the nodes that its containers form or simulate.
std::string machine_identity();

/// Identifies the links of this machine to others, as far as the system reports them: the active
/// network cards with their rates, and the environment variables that choose among them. Jobs on
/// hosts with a different link identity measure their links anew. `cards` is the folder of the
/// cards.
/// Threads: any, as long as no thread changes the environment.
std::string link_identity(const std::string& cards = "/sys/class/net");

/// Discovers this machine's hardware. Takes about ten milliseconds. Errors: std::runtime_error if
/// the operating system does not answer.
HardwareSnapshot discover_hardware();

/// Reads hardware from a file written by `lstopo --of xml`, possibly on another machine. Errors:
/// std::runtime_error naming the file.
HardwareSnapshot hardware_from_file(const std::string& lstopo_xml_path);

/// Bytes of a processor's largest cache, according to the system's description in this folder; 0 if
/// unknown. A virtual machine may see the whole cache of a host that it shares with others: sizes
/// above 24 MiB per hardware thread, which no processor has, are ignored.
/// Threads: any.
std::size_t last_level_cache_bytes(
    const std::filesystem::path& cpu = "/sys/devices/system/cpu/cpu0");

}  // namespace kolo
