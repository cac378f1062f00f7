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

/// The properties of a bucket in host memory on which the cost of an all-reduce depends.
struct HostBucket {
  std::size_t bytes = 0;  ///< Bytes of the bucket on one rank.
  Packing packing = Packing::kNone;
  std::size_t chunk_bytes = 0;  ///< Chunk size. 0 means that `CostModel::chunk_bytes` decides.
};

/// Extracts the properties of a bucket in host memory that the cost model needs.
HostBucket host_bucket(const BucketLayout& layout);

/// Predicts the time of an all-reduce from the price functions of its algorithm.
///
/// Units:   bytes of one rank's buffer; times are microseconds until the slowest rank is done.
/// Threads: pure; any.
/// Cost:    O(ranks log ranks) per prediction and chunk size.
/// Source:  Thakur, Rabenseifner and Gropp, IJHPCA 2005. This model adds one shared link per node,
///          the time of bytes inside a node, and pipelined chunks (`StageCost`).
class CostModel {
 public:
  CostModel(ProcessGrid grid, LinkCosts costs) : grid_(std::move(grid)), costs_(std::move(costs)) {}

  /// Predicts the time for a bucket in host memory. Errors: KoloError(kInternal) unless the
  /// algorithm supports host memory.
  Price host_price(const AllReduce& algorithm, const HostBucket& bucket) const;
  /// The cheapest chunk size for `algorithm` in bytes, a power of two. Small chunks fill the
  /// pipeline early; large chunks need fewer messages and steps. Ties go to the larger size.
  std::size_t chunk_bytes(const AllReduce& algorithm, const HostBucket& bucket) const;

  /// Predicts the time for a bucket of `bytes` in device memory, in units of `unit_bytes`. Assumes
  /// that device buckets run one after the other. Errors: KoloError(kInternal) unless the algorithm
  /// supports device memory.
  Price device_price(const AllReduce& algorithm, std::size_t bytes,
                     std::size_t unit_bytes = kDeviceUnitBytes) const;

  const LinkCosts& costs() const { return costs_; }

 private:
  /// Fixed overhead per bucket in microseconds, including the messages of its agreement.
  double bucket_us() const;
  StageCost stage_cost(const AllReduce& algorithm, const HostBucket& bucket, double bytes) const;
  Price chunked_price(const AllReduce& algorithm, const HostBucket& bucket,
                      std::size_t chunk_bytes) const;

  ProcessGrid grid_;
  LinkCosts costs_;
};

}  // namespace kolo
