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
  std::string model;  ///< Name of the CPU; empty if unknown.
  int cores = 0;
  int pus = 0;  ///< Hardware threads.
};

struct NumaNode {
  int os_index = -1;
  std::size_t memory_bytes = 0;
  int cores = 0;  ///< Cores nearest to this memory.
  int pus = 0;
  std::string cpus;  ///< OS indices of these hardware threads, such as "0-15,32-47".
};

/// Caches of equal level, kind and size.
struct CacheKind {
  int level = 0;
  char kind = 'u';  ///< 'u' unified, 'd' data, 'i' instructions.
  std::size_t bytes = 0;
  std::size_t line_bytes = 0;
  int count = 0;
  int pus_sharing = 0;  ///< Hardware threads that share one such cache.
};

/// A GPU or a network card on the PCI bus.
struct PciDevice {
  enum class Kind : std::uint8_t { kGpu, kNetwork };
  Kind kind = Kind::kGpu;
  std::string address;  ///< Such as "0000:3b:00.0".
  std::uint16_t vendor_id = 0;
  std::uint16_t device_id = 0;
  std::string name = {};                     ///< Vendor and model; empty if unknown.
  std::vector<std::string> os_devices = {};  ///< Names such as "eth0", "mlx5_0", "nvml0".
  /// OS index of the nearest NUMA node; -1 if several are equally near.
  int numa_node = -1;
  /// The bridges from the host bridge, such as "host 0000:80", down to the device.
  std::vector<std::string> bridges = {};
  double link_gb_per_s = 0;  ///< Rate of its PCI link in GB/s; 0 if unknown.
};

/// The hardware that this process may use, without processors outside its cgroup.
struct HardwareSnapshot {
  std::string host_name;
  int cores = 0;
  int pus = 0;
  std::size_t memory_bytes = 0;
  std::vector<Package> packages;
  std::vector<NumaNode> numa_nodes;
  /// Relative latency between two NUMA nodes, by their indices in `numa_nodes`, from the firmware's
  /// table; 10 is local. Empty if unknown.
  std::vector<std::vector<int>> numa_distances;
  std::vector<CacheKind> caches;   ///< In ascending order of levels.
  std::vector<PciDevice> devices;  ///< In ascending order of addresses.
};

/// Returns the identity of this machine as a node: `configured` if not empty, otherwise
/// KOLO_NODE_ID if set, otherwise host name and boot id. Processes with equal identities can map
/// each other's memory. Containers on one machine, with different host names, count as different
/// nodes.
/// Threads: any, while no thread changes the environment.
std::string node_identity(const std::string& configured = {});

/// Returns the short name of a node for messages: the host name without domain and boot id, or the
/// value of KOLO_NODE_ID. Pure.
std::string short_node_name(const std::string& identity);

/// Returns the identity of this machine, even if its containers form, or simulate, several nodes.
std::string machine_identity();

/// Returns the identity of this machine's links to others, as far as the system reports them: the
/// active network cards with their rates, and the environment variables that select cards. Jobs on
/// hosts with another link identity measure their links again. `cards` is the cards' folder.
/// Threads: any, while no thread changes the environment.
std::string link_identity(const std::string& cards = "/sys/class/net");

/// Discovers this machine's hardware in about ten milliseconds. Errors: std::runtime_error.
HardwareSnapshot discover_hardware();

/// Reads hardware from a file written by `lstopo --of xml`, possibly on another machine. Errors:
/// std::runtime_error that names the file.
HardwareSnapshot hardware_from_file(const std::string& lstopo_xml_path);

/// Returns the size in bytes of a processor's largest cache, as the system describes it in the
/// folder `cpu`; 0 if unknown. The result is at most 24 MiB per hardware thread, which no processor
/// exceeds: a virtual machine may see the whole cache of a host that it shares.
/// Threads: any.
std::size_t last_level_cache_bytes(
    const std::filesystem::path& cpu = "/sys/devices/system/cpu/cpu0");

}  // namespace kolo
