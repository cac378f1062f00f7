#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "comm/algorithms/all_reduce/all_reduce.h"
#include "comm/algorithms/compile_options.h"
#include "comm/algorithms/host_links.h"
#include "topology/link_costs.h"
#include "topology/process_grid.h"

namespace kolo {

/// The properties of a host bucket that decide the cost of an all-reduce.
struct HostBucket {
  std::size_t bytes = 0;  ///< On one rank, in the bucket's dtype.
  Packing packing = Packing::kNone;
  std::size_t chunk_bytes = 0;  ///< 0: use `CostModel::chunk_bytes`.
};

/// The cost model's view of a bucket in host memory.
HostBucket host_bucket(const BucketLayout& layout);

/// Predicted times of all-reduce algorithms, from their prices.
///
/// Units:   bytes of one rank's buffer; microseconds until the slowest rank is done.
/// Threads: pure; any.
/// Cost:    O(ranks log ranks) per prediction and chunk size.
/// Source:  Thakur, Rabenseifner and Gropp, IJHPCA 2005, with one shared link per node, with the
///          time that bytes take inside a node, and with chunks that follow each other
///          (`StageCost`).
class CostModel {
 public:
  CostModel(ProcessGrid grid, LinkCosts costs) : grid_(std::move(grid)), costs_(std::move(costs)) {}

  /// Errors: internal unless the algorithm takes host memory.
  Price host_price(const AllReduce& algorithm, const HostBucket& bucket) const;
  /// The best chunk size for `algorithm`, a power of two. Small chunks fill the pipeline early;
  /// large ones need fewer messages and steps. The larger size wins a tie.
  std::size_t chunk_bytes(const AllReduce& algorithm, const HostBucket& bucket) const;

  /// Assumes that device buckets follow each other. Errors: internal unless the algorithm takes
  /// device memory.
  Price device_price(const AllReduce& algorithm, std::size_t bytes,
                     std::size_t unit_bytes = kDeviceUnitBytes) const;

  const LinkCosts& costs() const { return costs_; }

 private:
  /// The fixed time per bucket, outside its algorithm.
  double bucket_us() const;
  StageCost stage_cost(const AllReduce& algorithm, const HostBucket& bucket, double bytes) const;
  Price chunked_price(const AllReduce& algorithm, const HostBucket& bucket,
                      std::size_t chunk_bytes) const;

  ProcessGrid grid_;
  LinkCosts costs_;
};

}  // namespace kolo
