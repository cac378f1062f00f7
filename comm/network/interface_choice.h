#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "topology/process_grid.h"

namespace kolo {

/// One address of a network interface of this machine.
struct NetworkInterface {
  std::string name;     ///< "eth0"
  std::string address;  ///< Numeric: "10.0.0.7", "2001:db8::7".
  bool is_loopback = false;
  int mbit_per_s = 0;  ///< 0 if the system does not know.

  friend bool operator==(const NetworkInterface&, const NetworkInterface&) = default;
};

/// The addresses of all interfaces that are up, except link-local ones (fe80::).
/// Threads: any. Errors: KoloError(kIo).
std::vector<NetworkInterface> network_interfaces();

/// The interfaces that a value of UCX_NET_DEVICES lists. If it lists none of them, as with "all"
/// and the names of InfiniBand devices, returns all. Pure.
std::vector<NetworkInterface> listed_interfaces(std::vector<NetworkInterface> interfaces,
                                                std::string_view devices);

/// "eth0 10.0.0.7"
std::string to_string(const NetworkInterface& interface);

/// A connection between two nodes, as indices in their lists of interfaces.
struct Way {
  int to_node = 0;
  int to = 0;    ///< The address that answered.
  int from = 0;  ///< The local interface that the system chose.

  friend auto operator<=>(const Way&, const Way&) = default;
};

/// A node that did not answer at any of its addresses.
struct NoWay {
  int to_node = 0;
  std::string why;  ///< "10.0.0.7: no route to host"
};

/// The interfaces of a node, and the results of its attempts to reach the other nodes.
struct NodeReach {
  std::vector<NetworkInterface> interfaces;
  std::vector<Way> ways;  ///< Ascending.
  std::vector<NoWay> no_ways;
};

struct InterfaceChoice {
  static constexpr int kNone = -1;

  std::vector<int> of_node;  ///< By node: its interface, or kNone if it reaches no other node.
  /// Pairs of nodes that cannot reach each other through the chosen interfaces, with ranks, hosts
  /// and addresses; empty if there are none.
  std::string problem;
};

/// Chooses one interface per node so that as many pairs as possible reach each other, in both
/// directions. Ties are broken in this order: the loopback, which works if all "nodes" are one
/// machine; the faster interface; IPv4; the lower address. `reach` is by node.
///
/// Threads: any; pure. Cost: quadratic in the number of nodes.
InterfaceChoice choose_interfaces(const ProcessGrid& grid, const std::vector<NodeReach>& reach);

}  // namespace kolo
