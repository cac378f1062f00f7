#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/base/error.h"
#include "comm/network/interface_choice.h"
#include "comm/network/reach_probe.h"
#include "comm/rendezvous/batched_exchange.h"
#include "topology/process_grid.h"

namespace kolo {

/// The interface through which a node reaches the other nodes.
struct NetworkPath {
  std::string interface = {};  ///< "eth0"; empty: none reaches another node.
  std::string address = {};    ///< Address of that interface.
  bool is_loopback = false;    ///< All "nodes" are one machine.
  /// Pairs of nodes that cannot reach each other, equal on all ranks; empty if there are none.
  std::string problem = {};
};

/// Finds the interfaces through which the nodes of a job reach each other, by connecting to all
/// addresses of all nodes. One rank per node connects; all ranks of the node get its path.
///
///     PathFinder finder(devices);  finder.post(exchange);
///     exchange.run();              // the round in which ranks learn which nodes there are
///     finder.find(...);            // one more round, if there are several
///
/// Every rank opens a port at once, because no rank knows yet whether its node needs it.
///
/// Threads: as the exchange; an additional thread serves other nodes during `find`.
class PathFinder {
 public:
  /// Considers only interfaces that `devices` lists, see `listed_interfaces`.
  explicit PathFinder(const std::string& devices);
  ~PathFinder();
  PathFinder(const PathFinder&) = delete;
  PathFinder& operator=(const PathFinder&) = delete;

  void post(BatchedExchange& exchange);

  /// Before: a round has run since `post`, and there are several nodes.
  /// Cost:   a connection to each address of each node; at most five seconds and half of `timeout`.
  /// Errors: those of the exchange; KoloError(kIo) if interfaces or sockets are unavailable.
  NetworkPath find(BatchedExchange& exchange, const ProcessGrid& grid, const std::string& job_id,
                   std::chrono::milliseconds timeout);

 private:
  std::vector<NetworkInterface> interfaces_;
  std::unique_ptr<ReachListener> listener_;
  std::optional<KoloError> problem_;  // matters only with several nodes
};

}  // namespace kolo
