#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "topology/process_grid.h"

namespace kolo {

/// Cost of one kind of link in the alpha-beta model: a message of b bytes takes
/// latency_us + b / bytes_per_us.
struct LinkCost {
  double latency_us = 0;
  double bytes_per_us = 1;
};

/// Costs of the links of a job; the defaults stand for a shared-memory node and a 10 Gbit/s
/// network.
struct LinkCosts {
  LinkCost memory{.latency_us = 0.5, .bytes_per_us = 8000};     ///< Between ranks of one node.
  LinkCost network{.latency_us = 15.0, .bytes_per_us = 1200};   ///< Between nodes, one node's link.
  LinkCost device{.latency_us = 5.0, .bytes_per_us = 360'000};  ///< Between devices of one node.
  LinkCost staging{.latency_us = 10.0,
                   .bytes_per_us = 25'000};  ///< Device to host memory, each way.
  /// Between nodes as the device's own library reaches it, one node's link.
  LinkCost native_network{.latency_us = 15.0, .bytes_per_us = 1200};
};

/// Bytes of a device bucket that go through node and network as one unit, unless told otherwise.
inline constexpr std::size_t kDeviceUnitBytes = std::size_t{32} << 20;

/// What limits the choice for a device bucket.
struct DeviceLimits {
  bool reproducible = false;       ///< Between nodes, elements are summed at one place.
  bool native_spans_nodes = true;  ///< The device's own library reaches all ranks.
  std::size_t unit_bytes = kDeviceUnitBytes;
};

/// Predicted times of all-reduce algorithms.
///
/// Units:   bytes of one rank's buffer; microseconds until the slowest rank is done.
/// Threads: pure; any.
/// Cost:    O(ranks log ranks) per prediction.
/// Source:  Thakur, Rabenseifner and Gropp, IJHPCA 2005, with one shared link per node. Kernels are
///          free and stages follow each other, so chunked schedules do somewhat better.
class CostModel {
 public:
  CostModel(ProcessGrid grid, LinkCosts costs) : grid_(std::move(grid)), costs_(costs) {}

  double ring_us(std::size_t bytes) const;
  double direct_us(std::size_t bytes) const;
  double halving_doubling_us(std::size_t bytes) const;
  double tree_us(std::size_t bytes) const;
  /// Local direct reduce-scatter, `cross` algorithm on each rank's part over all nodes, local
  /// all-gather. Errors: std::invalid_argument unless `cross` is a flat name.
  double hierarchical_us(std::size_t bytes, const std::string& cross) const;

  /// Names that `choose` considers, preferred first among equals: the flat ones, then
  /// "hierarchical:direct,CROSS" for each.
  static std::vector<std::string> algorithms();
  /// Whether each element is summed at one place in rank order per level.
  static bool is_reproducible(const std::string& algorithm);

  /// By name: "ring", "direct", "halving_doubling", "tree", "hierarchical" (best cross algorithm),
  /// "hierarchical:direct,CROSS", "native" or "hierarchical:native,CROSS". Errors:
  /// std::invalid_argument for an unknown name.
  double predict_us(const std::string& algorithm, std::size_t bytes) const;

  /// The algorithm with the lowest prediction. `reproducible` admits only those for which
  /// `is_reproducible` holds (direct, hierarchical:direct,direct), as 16-bit buckets need.
  std::string choose(std::size_t bytes, bool reproducible) const;

  /// One all-reduce of the device's own library over all ranks: rings in a node, trees between
  /// nodes.
  double native_us(std::size_t bytes) const;
  /// Native reduce-scatter in the node, staged `cross` exchange, native all-gather, in units that
  /// follow each other through these stages, at most two under way.
  /// Errors: std::invalid_argument unless `cross` is a flat name.
  double native_hierarchical_us(std::size_t bytes, const std::string& cross,
                                std::size_t unit_bytes = kDeviceUnitBytes) const;

  /// Names that `choose_device` considers, preferred first among equals: "native", then
  /// "hierarchical:native,CROSS" for each CROSS.
  static std::vector<std::string> device_algorithms(const DeviceLimits& limits);
  /// The one of them with the lowest prediction.
  std::string choose_device(std::size_t bytes, const DeviceLimits& limits = {}) const;
  /// `algorithm` and the best other one with their predictions: "native: 5.2 ms predicted;
  /// hierarchical:native,ring 8.1 ms".
  std::string explain_device(const std::string& algorithm, std::size_t bytes,
                             const DeviceLimits& limits = {}) const;

  const LinkCosts& costs() const { return costs_; }

 private:
  double flat_us(const std::string& algorithm, std::size_t bytes) const;
  double device_us(const std::string& algorithm, std::size_t bytes, std::size_t unit_bytes) const;
  std::string best_device(std::size_t bytes, const DeviceLimits& limits,
                          std::string_view except) const;

  ProcessGrid grid_;
  LinkCosts costs_;
};

}  // namespace kolo
