#include "topology/cost_model.h"

#include <algorithm>
#include <array>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace kolo {
namespace {

// Preferred first among equals: `direct` gives the same bits whatever the bucket's limits, and
// halving one part is a tree.
constexpr std::array<std::string_view, 5> kFlatAlgorithms = {"direct", "flat", "ring", "tree",
                                                             "halving_doubling"};
constexpr std::array<std::string_view, 4> kCrossAlgorithms = {"direct", "ring", "tree",
                                                              "halving_doubling"};
constexpr std::string_view kHierarchicalPrefix = "hierarchical:direct,";

// Chunk and bucket sizes that are considered.
constexpr std::size_t kSmallest = std::size_t{64} << 10;
constexpr std::size_t kLargest = std::size_t{64} << 20;

/// What agreement on a bucket costs a rank of several nodes: a message up and one down the tree.
constexpr int kAgreementMessages = 4;

/// The sizes worth trying for something of `bytes`, largest first.
std::vector<std::size_t> sizes_for(std::size_t bytes) {
  std::size_t size = kSmallest;
  while (size < bytes && size < kLargest) size *= 2;
  std::vector<std::size_t> sizes;
  for (; size >= kSmallest; size /= 2) sizes.push_back(size);
  return sizes;
}

ProcessGrid one_rank_per_node(int nodes) {
  return ProcessGrid::with_node_sizes(std::vector<int>(static_cast<std::size_t>(nodes), 1));
}

/// What a single node chooses from: messages and levels would only add to the way.
bool uses_mapped_memory(std::string_view algorithm) {
  return algorithm == "direct" || algorithm == "flat";
}

}  // namespace

LinkCosts costs_for_sizes(const std::string& algorithm, const LinkCosts& costs) {
  return CostModel::is_reproducible(algorithm) ? costs : LinkCosts{};
}

std::vector<std::string> CostModel::algorithms() {
  std::vector<std::string> names(kFlatAlgorithms.begin(), kFlatAlgorithms.end());
  for (std::string_view cross : kCrossAlgorithms) {
    names.push_back(std::string(kHierarchicalPrefix).append(cross));
  }
  return names;
}

bool CostModel::is_reproducible(const std::string& algorithm) {
  return algorithm == "direct" || algorithm == "flat" || algorithm == "hierarchical:direct,direct";
}

double CostModel::predict_us(const std::string& algorithm, const HostBucket& bucket) const {
  if (algorithm == "native" || algorithm.starts_with("hierarchical:native,")) {
    return device_us(algorithm, bucket.bytes, kDeviceUnitBytes);
  }
  if (algorithm != "hierarchical") return host_cost(algorithm, bucket).alone_us;
  double best = std::numeric_limits<double>::infinity();
  for (std::string_view cross : kCrossAlgorithms) {
    const std::string name = std::string(kHierarchicalPrefix).append(cross);
    best = std::min(best, host_cost(name, bucket).alone_us);
  }
  return best;
}

double CostModel::hierarchical_us(std::size_t bytes, const std::string& cross) const {
  return predict_us(std::string(kHierarchicalPrefix).append(cross), bytes);
}

std::string CostModel::choose(const HostBucket& bucket) const {
  std::string chosen;
  double best = std::numeric_limits<double>::infinity();
  for (const std::string& name : algorithms()) {
    if (bucket.reproducible && !is_reproducible(name)) continue;
    if (grid_.num_nodes() == 1 && !uses_mapped_memory(name)) continue;
    if (name == "flat" && bucket.bytes > kLargestFlat) continue;
    const double predicted = predict_us(name, bucket);
    if (predicted < best) {
      best = predicted;
      chosen = name;
    }
  }
  return chosen;
}

std::size_t CostModel::chunk_bytes(const std::string& algorithm, const HostBucket& bucket) const {
  std::size_t chosen = kSmallest;
  double best = std::numeric_limits<double>::infinity();
  for (const std::size_t size : sizes_for(bucket.bytes)) {
    const double predicted = chunked_cost(algorithm, bucket, size).alone_us;
    if (predicted < best) {
      best = predicted;
      chosen = size;
    }
  }
  return chosen;
}

std::size_t CostModel::fusion_bytes(const HostBucket& all) const {
  std::size_t chosen = kSmallest;
  double best = std::numeric_limits<double>::infinity();
  for (const std::size_t size : sizes_for(all.bytes)) {
    HostBucket bucket = all;
    bucket.bytes = std::min(size, all.bytes);
    const Cost one = host_cost(choose(bucket), bucket);
    const double buckets = static_cast<double>(all.bytes) /
                           static_cast<double>(std::max<std::size_t>(bucket.bytes, 1));
    // What is left to do after the last gradient, and what all the others keep busy.
    const double predicted = one.alone_us + buckets * one.busy_us;
    if (predicted < best) {
      best = predicted;
      chosen = size;
    }
  }
  return chosen;
}

CostModel::Cost CostModel::host_cost(const std::string& algorithm, const HostBucket& bucket) const {
  const std::size_t chunk =
      bucket.chunk_bytes > 0 ? bucket.chunk_bytes : chunk_bytes(algorithm, bucket);
  return chunked_cost(algorithm, bucket, chunk);
}

CostModel::Cost CostModel::chunked_cost(const std::string& algorithm, const HostBucket& bucket,
                                        std::size_t chunk_bytes) const {
  const auto bytes = static_cast<double>(bucket.bytes);
  // `flat` is for small buckets and moves all at once.
  const double chunk =
      algorithm == "flat" ? bytes : std::min(bytes, static_cast<double>(chunk_bytes));
  const double chunks = chunk > 0 ? bytes / chunk : 1;
  const Passage one = host_passage(algorithm, bucket, chunk);
  if (grid_.world_size() == 1) return {};
  const int messages = grid_.num_nodes() > 1 ? kAgreementMessages : 0;
  const double each = costs_.bucket_us + messages * costs_.network.message_us;
  const double burst_us = costs_.network.burst_bytes / costs_.network.bytes_per_us;
  return {.alone_us = each + pipeline_us(one, chunks, burst_us),
          .busy_us = each + chunks * one.pace_us()};
}

Passage CostModel::host_passage(const std::string& algorithm, const HostBucket& bucket,
                                double bytes) const {
  const HostPassages passages(grid_, costs_, static_cast<double>(bucket.bytes));
  const Passage packing = passages.packing(bytes, bucket.packing, algorithm);
  if (!algorithm.starts_with(kHierarchicalPrefix)) {
    return packing + flat_passage(algorithm, passages, bytes);
  }
  // All parts travel at once over each node's link: as if one rank per node had all the bytes.
  const ProcessGrid nodes = one_rank_per_node(grid_.num_nodes());
  const double groups = static_cast<double>(grid_.world_size()) / grid_.num_nodes();
  const HostPassages between(nodes, costs_, static_cast<double>(bucket.bytes), groups);
  const Passage cross = flat_passage(algorithm.substr(kHierarchicalPrefix.size()), between, bytes);
  return packing + passages.local_halves(bytes) + (grid_.num_nodes() > 1 ? cross : Passage{});
}

Passage CostModel::flat_passage(const std::string& algorithm, const HostPassages& passages,
                                double bytes) const {
  if (algorithm == "direct") return passages.direct(bytes);
  if (algorithm == "flat") return passages.flat(bytes);
  if (algorithm == "ring") return passages.ring(bytes);
  if (algorithm == "halving_doubling") return passages.halving_doubling(bytes);
  if (algorithm == "tree") return passages.tree(bytes);
  throw std::invalid_argument("unknown algorithm '" + algorithm + "' in a flat group");
}

}  // namespace kolo
