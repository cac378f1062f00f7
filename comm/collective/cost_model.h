#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/collective/compile_options.h"
#include "comm/collective/registry.h"
#include "comm/cost/host_links.h"
#include "topology/link_costs.h"
#include "topology/process_grid.h"

namespace kolo {

/// Limits of the choice for a device bucket.
struct DeviceLimits {
  bool reproducible = false;       ///< Between nodes, elements are summed at one place.
  bool native_spans_nodes = true;  ///< The device's own library reaches all ranks.
  std::size_t unit_bytes = kDeviceUnitBytes;
};

/// A host bucket, as far as it decides what an all-reduce costs.
struct HostBucket {
  std::size_t bytes = 0;      ///< On one rank, in the bucket's dtype.
  bool reproducible = false;  ///< Elements must be summed at one place per level (16-bit sums).
  Packing packing = Packing::kNone;
  std::size_t chunk_bytes = 0;  ///< 0: the size that `CostModel::chunk_bytes` says.
};

/// The costs that may decide the sizes of chunks and buckets. Where sizes decide the order of sums,
/// they must not depend on costs measured in this run: otherwise two equal runs could differ in
/// their bits.
LinkCosts costs_for_sizes(const Algorithm& algorithm, const LinkCosts& costs);

/// Predicted times of all-reduce algorithms, from the prices in the registry.
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

  /// The algorithms that `choose` considers, preferred first among equals.
  static std::vector<Algorithm> host_algorithms();

  /// Errors: internal unless the algorithm takes host memory.
  double predict_us(const Algorithm& algorithm, const HostBucket& bucket) const;

  /// The algorithm with the lowest prediction among those that the bucket admits; on a single node
  /// one that sums in rank order, so that no bit depends on what links cost.
  Algorithm choose(const HostBucket& bucket) const;

  /// The size of the pieces that `algorithm` should be cut into, a power of two. Small ones fill
  /// the pipeline soon, large ones have fewer messages and steps; ties go to the larger.
  std::size_t chunk_bytes(const Algorithm& algorithm, const HostBucket& bucket) const;
  /// The size of the buckets that gradients of `bucket.bytes` in all should travel in, a power of
  /// two: small ones leave little to do after the last gradient, large ones cost less in all. The
  /// sum of both is least.
  std::size_t fusion_bytes(const HostBucket& all) const;

  // --- Device memory --------------------------------------------------------------------------

  /// The algorithms that `choose_device` considers, preferred first among equals.
  static std::vector<Algorithm> device_algorithms(const DeviceLimits& limits);

  /// Errors: internal unless the algorithm takes device memory.
  double predict_device_us(const Algorithm& algorithm, std::size_t bytes,
                           std::size_t unit_bytes = kDeviceUnitBytes) const;
  /// The one of `device_algorithms` with the lowest prediction.
  Algorithm choose_device(std::size_t bytes, const DeviceLimits& limits = {}) const;
  /// `algorithm` and the best other one with their predictions: "native: 5.2 ms predicted;
  /// hierarchical:native,ring 8.1 ms".
  std::string explain_device(const Algorithm& algorithm, std::size_t bytes,
                             const DeviceLimits& limits = {}) const;

  /// `fusion_bytes` in device memory, by `asked` or by the cheapest algorithm for each size.
  /// Buckets are taken to follow each other, so the size errs on the large side.
  std::size_t device_fusion_bytes(const std::optional<Algorithm>& asked, std::size_t bytes,
                                  const DeviceLimits& limits = {}) const;

  const LinkCosts& costs() const { return costs_; }

 private:
  /// The time of one bucket, and the part of it that other buckets cannot use.
  struct Cost {
    double alone_us = 0;
    double busy_us = 0;
  };

  /// The time of a bucket beside its algorithm.
  double bucket_us() const;
  Passage passage(const Algorithm& algorithm, const HostBucket& bucket, double bytes) const;
  Cost host_cost(const Algorithm& algorithm, const HostBucket& bucket) const;
  Cost chunked_cost(const Algorithm& algorithm, const HostBucket& bucket,
                    std::size_t chunk_bytes) const;

  ProcessGrid grid_;
  LinkCosts costs_;
};

}  // namespace kolo
