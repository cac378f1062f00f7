#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "topology/process_grid.h"

namespace kolo {

/// One address of a network interface.
struct NetworkInterface {
  std::string name;     ///< Name: "eth0".
  std::string address;  ///< Numeric address: "10.0.0.7", "2001:db8::7".
  bool is_loopback = false;
  int mbit_per_s = 0;  ///< Data rate in Mbit/s, or 0 if unknown.

  friend bool operator==(const NetworkInterface&, const NetworkInterface&) = default;
};

/// Returns the addresses of all interfaces that are up, except link-local addresses (fe80::).
/// Threads: any. Errors: KoloError(kIo).
std::vector<NetworkInterface> network_interfaces();

/// Returns the interfaces that `devices`, a value of UCX_NET_DEVICES, lists. If it lists none of
/// them, as with "all" or names of InfiniBand devices, returns all interfaces. Pure.
std::vector<NetworkInterface> listed_interfaces(std::vector<NetworkInterface> interfaces,
                                                std::string_view devices);

/// Returns name and address: "eth0 10.0.0.7".
std::string to_string(const NetworkInterface& interface);

/// A successful connection to another node. Fields are indices in `NodeReach::interfaces`.
struct Way {
  int to_node = 0;
  int to = 0;    ///< Interface of `to_node` that answered.
  int from = 0;  ///< Local interface that the system chose.

  friend auto operator<=>(const Way&, const Way&) = default;
};

/// A node that did not answer at any address.
struct NoWay {
  int to_node = 0;
  std::string why;  ///< Reasons: "10.0.0.7: no route to host".
};

/// The interfaces of a node, and the results of its attempts to connect to the other nodes.
struct NodeReach {
  std::vector<NetworkInterface> interfaces;
  std::vector<Way> ways;  ///< Successful connections, ascending.
  std::vector<NoWay> no_ways;
};

struct InterfaceChoice {
  static constexpr int kNone = -1;

  std::vector<int> of_node;  ///< Chosen interface by node; kNone if the node reaches no other node.
  /// Describes pairs of nodes that cannot reach each other by the chosen interfaces, or is empty.
  std::string problem;
};

/// Chooses one interface per node so that many pairs of nodes reach each other in both directions.
/// Among equally good interfaces, preference is in this order: the loopback, which works if all
/// "nodes" are one machine; the faster interface; IPv4; the lower address. `reach` is by node.
///
/// Threads: any; pure. Cost: quadratic in the number of nodes.
InterfaceChoice choose_interfaces(const ProcessGrid& grid, const std::vector<NodeReach>& reach);

}  // namespace kolo
