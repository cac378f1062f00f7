#include "comm/collective/cost_model.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "comm/base/check.h"

namespace kolo {
namespace {

// Chunk and bucket sizes that are considered.
constexpr std::size_t kSmallest = std::size_t{64} << 10;
constexpr std::size_t kLargest = std::size_t{64} << 20;

/// Messages that a rank handles for the agreement on a bucket between nodes: it receives and sends
/// one going up the tree, and again going down.
constexpr int kAgreementMessages = 4;

/// Chunks of a bucket: planning takes time for each, in which an engine answers no peer.
constexpr std::size_t kMostChunks = 4096;

/// The sizes worth trying for something of `bytes`, largest first; the others are `smallest` or
/// more.
std::vector<std::size_t> sizes_for(std::size_t bytes, std::size_t smallest) {
  std::size_t size = kSmallest;
  while (size < bytes && size < kLargest) size *= 2;
  std::vector<std::size_t> sizes{size};
  while ((size /= 2) >= smallest) sizes.push_back(size);
  return sizes;
}

/// The first of `candidates` with the lowest cost. Before: there are some.
template <typename Value, typename Cost>
Value cheapest(const std::vector<Value>& candidates, Cost cost) {
  return *std::ranges::min_element(candidates, {}, cost);
}

std::vector<Algorithm> automatic(MemoryKind memory) {
  std::vector<Algorithm> result;
  for (const AlgorithmEntry* entry : algorithm_entries()) {
    if (entry->auto_choice.has(memory)) result.emplace_back(*entry);
  }
  for (const Algorithm& hierarchy : hierarchies_for(memory)) result.push_back(hierarchy);
  return result;
}

std::string time_text(double us) {
  return us < 1000 ? fmt::format("{:.1f} us", us) : fmt::format("{:.1f} ms", us / 1000);
}

/// Messages of a device bucket between all ranks: their bytes are copied to the host and back.
double staged_us(const AlgorithmEntry& entry, const ProcessGrid& grid, const LinkCosts& costs,
                 double bytes) {
  if (grid.world_size() == 1) return 0;
  const double ranks = grid.world_size();
  const auto [copy, network] =
      staged_exchange(grid, costs, entry.price, bytes, 2 * (ranks - 1) / ranks * bytes);
  return 2 * copy + network;
}

}  // namespace

LinkCosts costs_for_sizes(const Algorithm& algorithm, const LinkCosts& costs) {
  return algorithm.sums_in_one_place() ? costs : LinkCosts{};
}

std::vector<Algorithm> CostModel::host_algorithms() { return automatic(MemoryKind::kHost); }

double CostModel::predict_us(const Algorithm& algorithm, const HostBucket& bucket) const {
  return host_cost(algorithm, bucket).alone_us;
}

Algorithm CostModel::choose(const HostBucket& bucket) const {
  std::vector<Algorithm> candidates = host_algorithms();
  std::erase_if(candidates, [&](const Algorithm& each) {
    const bool rounds_often = bucket.reproducible && !each.sums_in_one_place();
    const bool depends_on_links = grid_.num_nodes() == 1 && !each.maps_memory();
    const bool is_too_large = each.flat() != nullptr && bucket.bytes > each.flat()->auto_most_bytes;
    return rounds_often || depends_on_links || is_too_large;
  });
  return cheapest(candidates, [&](const Algorithm& each) { return predict_us(each, bucket); });
}

std::size_t CostModel::chunk_bytes(const Algorithm& algorithm, const HostBucket& bucket) const {
  return cheapest(sizes_for(bucket.bytes, std::max(kSmallest, bucket.bytes / kMostChunks)),
                  [&](std::size_t size) { return chunked_cost(algorithm, bucket, size).alone_us; });
}

std::size_t CostModel::fusion_bytes(const HostBucket& all) const {
  return cheapest(sizes_for(all.bytes, kSmallest), [&](std::size_t size) {
    HostBucket bucket = all;
    bucket.bytes = std::min(size, all.bytes);
    const Cost one = host_cost(choose(bucket), bucket);
    const double buckets = static_cast<double>(all.bytes) /
                           static_cast<double>(std::max<std::size_t>(bucket.bytes, 1));
    // The work that is left after the last gradient, and the time that all buckets keep busy.
    return one.alone_us + buckets * one.busy_us;
  });
}

CostModel::Cost CostModel::host_cost(const Algorithm& algorithm, const HostBucket& bucket) const {
  const std::size_t chunk =
      bucket.chunk_bytes > 0 ? bucket.chunk_bytes : chunk_bytes(algorithm, bucket);
  return chunked_cost(algorithm, bucket, chunk);
}

CostModel::Cost CostModel::chunked_cost(const Algorithm& algorithm, const HostBucket& bucket,
                                        std::size_t chunk_bytes) const {
  ensure(algorithm.takes(MemoryKind::kHost), "a price in memory that the algorithm does not take");
  if (grid_.world_size() == 1) return {};
  const auto bytes = static_cast<double>(bucket.bytes);
  const bool is_whole = algorithm.flat() != nullptr && algorithm.flat()->in_one_piece;
  const double chunk = is_whole ? bytes : std::min(bytes, static_cast<double>(chunk_bytes));
  const double chunks = chunk > 0 ? bytes / chunk : 1;
  const Passage one = passage(algorithm, bucket, chunk);
  const double each = bucket_us();
  const double burst_us = costs_.network.burst_bytes / costs_.network.bytes_per_us;
  return {.alone_us = each + pipeline_us(one, chunks, burst_us),
          .busy_us = each + chunks * one.pace_us()};
}

double CostModel::bucket_us() const {
  const int messages = grid_.num_nodes() > 1 ? kAgreementMessages : 0;
  return costs_.bucket_us + messages * costs_.network.message_us;
}

Passage CostModel::passage(const Algorithm& algorithm, const HostBucket& bucket,
                           double bytes) const {
  const HostLinks links(grid_, costs_, static_cast<double>(bucket.bytes));
  if (const Hierarchy* hierarchy = algorithm.hierarchy()) {
    return links.packing(bytes, bucket.packing) +
           hierarchical_price(links, *hierarchy->local->halves, hierarchy->cross->price, bytes);
  }
  const AlgorithmEntry& entry = *algorithm.flat();
  const Passage packing = entry.packing_price != nullptr
                              ? entry.packing_price(links, bytes, bucket.packing)
                              : links.packing(bytes, bucket.packing);
  return packing + entry.price(links, bytes);
}

std::vector<Algorithm> CostModel::device_algorithms(const DeviceLimits& limits) {
  std::vector<Algorithm> result = automatic(MemoryKind::kDevice);
  std::erase_if(result, [&](const Algorithm& each) {
    return (limits.reproducible && !each.sums_in_one_place()) ||
           (!limits.native_spans_nodes && each.needs_native());
  });
  return result;
}

double CostModel::predict_device_us(const Algorithm& algorithm, std::size_t bytes,
                                    std::size_t unit_bytes) const {
  ensure(algorithm.takes(MemoryKind::kDevice),
         "a price in memory that the algorithm does not take");
  if (const Hierarchy* hierarchy = algorithm.hierarchy()) {
    return hierarchical_device_us(grid_, costs_, *hierarchy->local->halves, hierarchy->cross->price,
                                  bytes, unit_bytes);
  }
  const AlgorithmEntry& entry = *algorithm.flat();
  const auto whole = static_cast<double>(bytes);
  return entry.device_us != nullptr ? entry.device_us(grid_, costs_, whole)
                                    : staged_us(entry, grid_, costs_, whole);
}

Algorithm CostModel::choose_device(std::size_t bytes, const DeviceLimits& limits) const {
  return cheapest(device_algorithms(limits), [&](const Algorithm& each) {
    return predict_device_us(each, bytes, limits.unit_bytes);
  });
}

std::size_t CostModel::device_fusion_bytes(const std::optional<Algorithm>& asked, std::size_t bytes,
                                           const DeviceLimits& limits) const {
  return cheapest(sizes_for(bytes, kSmallest), [&](std::size_t size) {
    const std::size_t bucket = std::min(size, bytes);
    const Algorithm algorithm = asked ? *asked : choose_device(bucket, limits);
    const double us = bucket_us() + predict_device_us(algorithm, bucket, limits.unit_bytes);
    const double buckets =
        static_cast<double>(bytes) / static_cast<double>(std::max<std::size_t>(bucket, 1));
    return us + buckets * us;
  });
}

std::string CostModel::explain_device(const Algorithm& algorithm, std::size_t bytes,
                                      const DeviceLimits& limits) const {
  const auto us = [&](const Algorithm& each) {
    return predict_device_us(each, bytes, limits.unit_bytes);
  };
  std::string text =
      fmt::format("{}: {} predicted", algorithm.to_string(), time_text(us(algorithm)));
  std::vector<Algorithm> others = device_algorithms(limits);
  std::erase(others, algorithm);
  if (others.empty()) return text;
  const Algorithm best = cheapest(others, us);
  return text + fmt::format("; {} {}", best.to_string(), time_text(us(best)));
}

}  // namespace kolo
