#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kolo {

/// One address of a network interface of this machine.
struct NetworkInterface {
  std::string name;     ///< "eth0"
  std::string address;  ///< Numeric: "10.0.0.7", "2001:db8::7".
  bool is_loopback = false;
  int mbit_per_s = 0;  ///< 0 if the system does not know.

  friend bool operator==(const NetworkInterface&, const NetworkInterface&) = default;
};

/// The addresses of all interfaces that are up, without those that mean something on one link only
/// (fe80::).
/// Threads: any. Errors: KoloError(kIo).
std::vector<NetworkInterface> network_interfaces();

/// The interfaces that a value of UCX_NET_DEVICES lists; all of them if it lists none of these, as
/// "all" and the names of InfiniBand devices do. Pure.
std::vector<NetworkInterface> listed_interfaces(std::vector<NetworkInterface> interfaces,
                                                std::string_view devices);

/// "eth0 10.0.0.7"
std::string to_string(const NetworkInterface& interface);

}  // namespace kolo
