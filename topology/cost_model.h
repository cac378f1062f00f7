#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "topology/host_passages.h"
#include "topology/link_costs.h"
#include "topology/process_grid.h"

namespace kolo {

/// Bytes of a device bucket that go through node and network as one unit, unless told otherwise.
inline constexpr std::size_t kDeviceUnitBytes = std::size_t{32} << 20;

/// `flat` is not chosen beyond: it stages a bucket whole, twice, and each rank reads all of it, so
/// that a mistaken cost would take much memory as well as time.
inline constexpr std::size_t kLargestFlat = std::size_t{256} << 10;

/// What limits the choice for a device bucket.
struct DeviceLimits {
  bool reproducible = false;       ///< Between nodes, elements are summed at one place.
  bool native_spans_nodes = true;  ///< The device's own library reaches all ranks.
  std::size_t unit_bytes = kDeviceUnitBytes;
};

/// A host bucket, as far as it decides what an all-reduce costs.
struct HostBucket {
  std::size_t bytes = 0;      ///< Of one rank, in the bucket's dtype.
  bool reproducible = false;  ///< Elements must be summed at one place per level (16-bit sums).
  Packing packing = Packing::kNone;
  std::size_t chunk_bytes = 0;  ///< 0: whatever `CostModel::chunk_bytes` says.
};

/// What sizes of chunks and buckets may follow from. Where they decide the order of sums, they must
/// not follow from what was measured in this run, or its bits would be those of no other.
LinkCosts costs_for_sizes(const std::string& algorithm, const LinkCosts& costs);

/// Predicted times of all-reduce algorithms.
///
/// Units:   bytes of one rank's buffer; microseconds until the slowest rank is done.
/// Threads: pure; any.
/// Cost:    O(ranks log ranks) per prediction and chunk size.
/// Source:  Thakur, Rabenseifner and Gropp, IJHPCA 2005, with one shared link per node, with the
///          time that bytes take inside a node, and with chunks that follow each other (`Passage`).
class CostModel {
 public:
  CostModel(ProcessGrid grid, LinkCosts costs) : grid_(std::move(grid)), costs_(std::move(costs)) {}

  // --- Host memory ----------------------------------------------------------------------------

  /// Names that `choose` considers, preferred first among equals: the flat ones, then
  /// "hierarchical:direct,CROSS" for each that runs between nodes.
  static std::vector<std::string> algorithms();
  /// Whether each element is summed at one place in rank order per level.
  static bool is_reproducible(const std::string& algorithm);

  /// By name: one of `algorithms()`, "hierarchical" (with the best CROSS), "native" or
  /// "hierarchical:native,CROSS". Errors: std::invalid_argument for an unknown name.
  double predict_us(const std::string& algorithm, const HostBucket& bucket) const;
  double predict_us(const std::string& algorithm, std::size_t bytes) const {
    return predict_us(algorithm, HostBucket{.bytes = bytes});
  }
  /// "hierarchical:direct,CROSS". Errors: std::invalid_argument unless `cross` is a flat name.
  double hierarchical_us(std::size_t bytes, const std::string& cross) const;

  /// The algorithm with the lowest prediction among those that the bucket admits; on a single node
  /// `flat` or `direct`, which sum in rank order, so that no bit depends on what links cost.
  std::string choose(const HostBucket& bucket) const;
  std::string choose(std::size_t bytes, bool reproducible, Packing packing = Packing::kNone) const {
    return choose({.bytes = bytes, .reproducible = reproducible, .packing = packing});
  }

  /// The size of the pieces that `algorithm` should be cut into, a power of two. Small ones fill
  /// the pipeline soon, large ones have fewer messages and steps; ties go to the larger.
  std::size_t chunk_bytes(const std::string& algorithm, const HostBucket& bucket) const;
  /// The size of the buckets that gradients of `bucket.bytes` in all should travel in, a power of
  /// two: small ones leave little to do after the last gradient, large ones cost less in all. The
  /// sum of both is least.
  std::size_t fusion_bytes(const HostBucket& all) const;

  // --- Device memory --------------------------------------------------------------------------

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
  /// Of one bucket: how long it takes, and how much of it nobody else can use.
  struct Cost {
    double alone_us = 0;
    double busy_us = 0;
  };

  Passage host_passage(const std::string& algorithm, const HostBucket& bucket, double bytes) const;
  Passage flat_passage(const std::string& algorithm, const HostPassages& passages,
                       double bytes) const;
  Cost host_cost(const std::string& algorithm, const HostBucket& bucket) const;
  Cost chunked_cost(const std::string& algorithm, const HostBucket& bucket,
                    std::size_t chunk_bytes) const;
  double device_us(const std::string& algorithm, std::size_t bytes, std::size_t unit_bytes) const;
  std::string best_device(std::size_t bytes, const DeviceLimits& limits,
                          std::string_view except) const;

  ProcessGrid grid_;
  LinkCosts costs_;
};

}  // namespace kolo
