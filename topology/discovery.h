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
  int cores = 0;  ///< Near this memory.
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
  int pus_sharing = 0;  ///< Hardware threads behind one of them.
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
  int numa_node = -1;                        ///< OS index of the nearest memory; -1 if several are.
  /// From the host bridge, "host 0000:80", down to the last.
  std::vector<std::string> bridges = {};
  double link_gb_per_s = 0;  ///< GB/s of its PCI link; 0 if unknown.
};

/// The hardware that this process may use: processors outside its cgroup are left out.
struct HardwareSnapshot {
  std::string host_name;
  int cores = 0;
  int pus = 0;
  std::size_t memory_bytes = 0;
  std::vector<Package> packages;
  std::vector<NumaNode> numa_nodes;
  /// By places in `numa_nodes`: relative latency from the firmware's table, 10 is local. Empty if
  /// unknown.
  std::vector<std::vector<int>> numa_distances;
  std::vector<CacheKind> caches;   ///< Ascending level.
  std::vector<PciDevice> devices;  ///< By bus address.
};

/// Identifies this machine as a node: `configured` if not empty, else KOLO_NODE_ID if set, else
/// host name and boot id. Processes with equal identity can map each other's memory; containers on
/// one machine have host names of their own and count as nodes of their own.
/// Threads: any, as long as nobody changes the environment.
std::string node_identity(const std::string& configured = {});

/// The short name of a node, for people: the host name without domain and boot id, or the name
/// that KOLO_NODE_ID gave it. Pure.
std::string short_node_name(const std::string& identity);

/// Identifies this machine, whatever nodes its containers are or play.
std::string machine_identity();

/// Identifies the links of this machine to others, as far as the system knows them: the network
/// cards that are up with their rates, and the variables that choose among them. Jobs between hosts
/// whose links have other names measure them anew. `cards` is the folder of the cards.
/// Threads: any, as long as nobody changes the environment.
std::string link_identity(const std::string& cards = "/sys/class/net");

/// Discovers this machine's hardware. Takes some ten milliseconds.
/// Errors: std::runtime_error if the operating system has no answer.
HardwareSnapshot discover_hardware();

/// Reads hardware from a file that `lstopo --of xml` wrote, perhaps on another machine.
/// Errors: std::runtime_error naming the file.
HardwareSnapshot hardware_from_file(const std::string& lstopo_xml_path);

/// Bytes of the largest cache of a processor that the system describes in this folder, or 0 if it
/// does not say. A virtual machine may be told of the whole cache of a host that it shares with
/// others: more than 24 MiB for each hardware thread, which no processor has, does not count.
/// Threads: any.
std::size_t last_level_cache_bytes(
    const std::filesystem::path& cpu = "/sys/devices/system/cpu/cpu0");

}  // namespace kolo
