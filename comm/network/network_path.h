#pragma once

#include <chrono>
#include <string>

#include "comm/network/interface_choice.h"
#include "comm/rendezvous/batched_exchange.h"
#include "topology/process_grid.h"

namespace kolo {

/// How a node reaches the others.
struct NetworkPath {
  std::string interface;  ///< "eth0"; empty: none reaches another node.
  std::string address;    ///< Of that interface.
  /// Pairs of nodes that do not reach each other; empty if all do. The same on all ranks.
  std::string problem;
};

/// Finds the interfaces through which the nodes of a job reach each other, by connecting to all
/// addresses of all nodes. Only interfaces that `devices` lists are looked at, see
/// `listed_interfaces`.
///
/// Two rounds of the exchange. One rank of each node connects; all ranks of a node get its path.
/// Before: there are several nodes. Threads: those of the exchange; one serves other nodes
/// meanwhile.
/// Cost:    a connection to each address of each node, at most five seconds and half of `timeout`.
/// Errors:  those of the exchange; KoloError(kIo) if interfaces or sockets cannot be had.
NetworkPath find_network_path(BatchedExchange& exchange, const ProcessGrid& grid,
                              const std::string& job_id, const std::string& devices,
                              std::chrono::milliseconds timeout);

}  // namespace kolo
