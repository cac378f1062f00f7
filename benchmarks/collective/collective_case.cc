#include "benchmarks/collective/collective_case.h"

#include <algorithm>
#include <set>
#include <vector>

#include "comm/schedule/collective_spec.h"

namespace kolo::bench {
namespace {

/// Returns the collective in which each rank sends a message to its partner.
CollectiveSpec messages(int ranks, std::size_t count) {
  std::vector<CollectiveSpec::Part> parts;
  for (int rank = 0; rank < ranks; ++rank) {
    parts.push_back({.extent = {static_cast<std::size_t>(rank) * count, count},
                     .contributors = RankRange::one(rank),
                     .receivers = RankRange::one(partner(rank, ranks))});
  }
  return CollectiveSpec::of_parts(ranks, parts);
}

}  // namespace

CollectiveSpec CollectiveCase::spec(int ranks) const {
  if (verb == Verb::kSendRecv) return messages(ranks, count());
  return even_spec(traits_of(verb).kind, ranks, count());
}

std::size_t CollectiveCase::whole_bytes(std::size_t most, int ranks) const {
  std::size_t unit = size_of(dtype);
  if (has_parts(verb)) unit *= static_cast<std::size_t>(ranks);
  if (verb == Verb::kSparseRows) unit *= width;
  return most == 0 ? 0 : std::max<std::size_t>(most / unit, 1) * unit;
}

double CollectiveCase::bus_factor(int ranks) const {
  const double others = static_cast<double>(ranks - 1) / ranks;
  if (verb == Verb::kSendRecv) return 2;  // a message in each direction
  if (verb == Verb::kAllReduce || verb == Verb::kSparseRows) return 2 * others;
  return has_parts(verb) ? others : 1;
}

std::size_t least_wire_bytes(const CollectiveCase& what, std::span<const int> node_of) {
  const auto nodes = static_cast<std::size_t>(1 + *std::ranges::max_element(node_of));
  if (what.verb == Verb::kAllReduce) return 2 * (nodes - 1) * what.bytes / nodes;
  const auto nodes_of = [&](const RankRange& ranks) {
    std::set<int> all;
    for (const int rank : ranks) all.insert(node_of[static_cast<std::size_t>(rank)]);
    return all;
  };
  const auto has_others = [](const std::set<int>& all, int node) {
    return all.size() > all.count(node);
  };
  std::vector<std::size_t> sent(nodes), received(nodes);
  const CollectiveSpec spec = what.spec(static_cast<int>(node_of.size()));
  for (const CollectiveSpec::Part& part : spec.parts()) {
    const std::set<int> from = nodes_of(part.contributors), to = nodes_of(part.receivers);
    for (const int node : from) {
      if (has_others(to, node)) sent[static_cast<std::size_t>(node)] += part.extent.count;
    }
    for (const int node : to) {
      if (has_others(from, node)) received[static_cast<std::size_t>(node)] += part.extent.count;
    }
  }
  return std::max(*std::ranges::max_element(sent), *std::ranges::max_element(received)) *
         size_of(what.dtype);
}

CaseCounts counts_of(const CollectiveCase& what, int rank, int ranks) {
  CaseCounts counts;
  const auto add = [](const Extent& extent, std::size_t& count, std::size_t& at) {
    if (count == 0) at = extent.offset;
    count += extent.count;
  };
  const CollectiveSpec spec = what.spec(ranks);
  for (const CollectiveSpec::Part& part : spec.parts()) {
    if (part.contributes(rank)) add(part.extent, counts.contributed, counts.contributed_at);
    if (part.receives(rank)) add(part.extent, counts.received, counts.received_at);
  }
  // Offsets matter only if a rank's single buffer also holds parts of other ranks. In an
  // all-to-all, received data overwrite sent data at the same offset.
  if (what.verb == Verb::kAllToAll || counts.contributed == 0 || counts.received == 0) {
    counts.contributed_at = counts.received_at = 0;
  }
  return counts;
}

}  // namespace kolo::bench
