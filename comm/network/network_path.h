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

/// The interface through which this node reaches the other nodes.
struct NetworkPath {
  std::string interface = {};  ///< "eth0", or empty if no interface reaches another node.
  std::string address = {};    ///< Address of `interface`.
  bool is_loopback = false;    ///< Whether all "nodes" are one machine.
  /// Describes pairs of nodes that cannot reach each other, or is empty; equal on all ranks.
  std::string problem = {};
};

/// Finds the interfaces through which the nodes of a job reach each other. The leader of each node
/// connects to all addresses of all other nodes; all ranks of the node get the result.
///
///     PathFinder finder(devices);  finder.post(exchange);
///     exchange.run();              // the round in which ranks exchange their nodes
///     finder.serve(...);           // before slow work; only with several nodes
///     finder.find(...);            // one more round
///
/// Every rank opens a port before it knows whether it is the leader of its node.
///
/// Threads: those of the exchange; a background thread answers other nodes from `serve` to the end
/// of `find`.
class PathFinder {
 public:
  /// Considers only interfaces that `devices` lists; see `listed_interfaces`. Does not throw.
  explicit PathFinder(const std::string& devices);
  ~PathFinder();
  PathFinder(const PathFinder&) = delete;
  PathFinder& operator=(const PathFinder&) = delete;

  void post(BatchedExchange& exchange);

  /// Answers other nodes from now on, if `rank` leads its node. Does not wait.
  void serve(const ProcessGrid& grid, int rank, const std::string& job_id);

  /// Before: `exchange` has run a round since `post`, and this rank has called `serve`.
  /// Cost:   a connection to each address of each node. Connecting takes at most five seconds and
  ///         at most half of `timeout`.
  /// Errors: those of the exchange; KoloError(kIo) if interfaces or sockets are unavailable.
  NetworkPath find(BatchedExchange& exchange, const ProcessGrid& grid, const std::string& job_id,
                   std::chrono::milliseconds timeout);

 private:
  std::vector<NetworkInterface> interfaces_;
  std::unique_ptr<ReachListener> listener_;
  std::optional<KoloError> problem_;  // error of the constructor; `find` throws it
};

}  // namespace kolo
