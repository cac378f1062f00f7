#include "comm/algorithms/all_reduce/cost_model.h"

#include <algorithm>

#include "comm/base/check.h"

namespace kolo {
namespace {

/// Messages that a rank handles for the agreement on a bucket between nodes: it receives and sends
/// one up the tree, and one down the tree.
constexpr int kAgreementMessages = 4;

/// Limit of chunks per bucket. Planning a chunk takes time, in which an engine answers no peer.
constexpr std::size_t kMostChunks = 4096;

/// Microseconds of a device bucket whose messages are copied to the host and back.
double staged_us(const FlatAllReduce& entry, const ProcessGrid& grid, const LinkCosts& costs,
                 double bytes) {
  if (grid.world_size() == 1) return 0;
  const double ranks = grid.world_size();
  const auto [copy, network] =
      staged_exchange(grid, costs, entry.price, bytes, 2 * (ranks - 1) / ranks * bytes);
  return 2 * copy + network;
}

}  // namespace

HostBucket host_bucket(const BucketLayout& layout) {
  Packing packing = Packing::kNone;
  if (layout.placement == Placement::kUser) packing = Packing::kUser;
  if (layout.placement == Placement::kStaged) packing = Packing::kCast;
  return {.bytes = layout.bytes(), .packing = packing};
}

std::size_t CostModel::chunk_bytes(const AllReduce& algorithm, const HostBucket& bucket) const {
  const std::vector<std::size_t> sizes =
      sizes_for(bucket.bytes, std::max(kSmallestChunk, bucket.bytes / kMostChunks));
  return *std::ranges::min_element(
      sizes, {}, [&](std::size_t size) { return chunked_price(algorithm, bucket, size).us; });
}

Price CostModel::host_price(const AllReduce& algorithm, const HostBucket& bucket) const {
  const std::size_t chunk =
      bucket.chunk_bytes > 0 ? bucket.chunk_bytes : chunk_bytes(algorithm, bucket);
  return chunked_price(algorithm, bucket, chunk);
}

Price CostModel::chunked_price(const AllReduce& algorithm, const HostBucket& bucket,
                               std::size_t chunk_bytes) const {
  ensure(algorithm.takes(MemoryKind::kHost), "a price in memory that the algorithm does not take");
  if (grid_.world_size() == 1) return {};
  const auto bytes = static_cast<double>(bucket.bytes);
  const bool is_whole = algorithm.flat() != nullptr && algorithm.flat()->in_one_piece;
  const double chunk = is_whole ? bytes : std::min(bytes, static_cast<double>(chunk_bytes));
  const double chunks = chunk > 0 ? bytes / chunk : 1;
  const StageCost one = stage_cost(algorithm, bucket, chunk);
  const double each = bucket_us();
  const double burst_us = costs_.network.burst_bytes / costs_.network.bytes_per_us;
  return {.us = each + pipeline_us(one, chunks, burst_us),
          .busy_us = each + chunks * one.pace_us()};
}

double CostModel::bucket_us() const {
  const int messages = grid_.num_nodes() > 1 ? kAgreementMessages : 0;
  return costs_.bucket_us + messages * costs_.network.message_us;
}

StageCost CostModel::stage_cost(const AllReduce& algorithm, const HostBucket& bucket,
                                double bytes) const {
  const HostLinks links(grid_, costs_, static_cast<double>(bucket.bytes));
  if (const Hierarchy* hierarchy = algorithm.hierarchy()) {
    return links.packing(bytes, bucket.packing) +
           hierarchical_price(links, *hierarchy->local->phases, hierarchy->cross->price, bytes);
  }
  const FlatAllReduce& entry = *algorithm.flat();
  const StageCost packing = entry.packing_price != nullptr
                                ? entry.packing_price(links, bytes, bucket.packing)
                                : links.packing(bytes, bucket.packing);
  return packing + entry.price(links, bytes);
}

Price CostModel::device_price(const AllReduce& algorithm, std::size_t bytes,
                              std::size_t unit_bytes) const {
  ensure(algorithm.takes(MemoryKind::kDevice),
         "a price in memory that the algorithm does not take");
  const auto predicted_us = [&] {
    if (const Hierarchy* hierarchy = algorithm.hierarchy()) {
      return hierarchical_device_us(grid_, costs_, *hierarchy->local->phases,
                                    hierarchy->cross->price, bytes, unit_bytes);
    }
    const FlatAllReduce& flat = *algorithm.flat();
    const auto whole = static_cast<double>(bytes);
    return flat.device_us != nullptr ? flat.device_us(grid_, costs_, whole)
                                     : staged_us(flat, grid_, costs_, whole);
  };
  const double us = bucket_us() + predicted_us();
  return {.us = us, .busy_us = us};
}

}  // namespace kolo
