#include "comm/algorithms/host/leader_buffers.h"

#include <algorithm>
#include <utility>

#include "comm/algorithms/host/staged_chunks.h"
#include "comm/algorithms/host/sums.h"
#include "comm/base/contains.h"

namespace kolo {
LeaderBuffers::LeaderBuffers(ScheduleBuilder& builder, const CollectiveSpec& spec,
                             const ProcessGrid& grid)
    : builder_(builder),
      spec_(spec),
      grid_(grid),
      node_(grid.node(builder.rank())),
      sums_in_one_place_(sums_in_one_place(builder.layout())),
      given_(static_cast<std::size_t>(grid.num_nodes())),
      got_(given_),
      contributed_(static_cast<std::size_t>(grid.world_size())) {
  if (has_pairs(spec.kind) && (spec.tensors() > 1 || !spec.has_equal_parts())) {
    pairs_.resize(given_.size() * given_.size());
  }
  std::size_t of_all = 0;  // elements that every rank contributes
  for (std::size_t i = 0; i < spec.size(); ++i) {
    const CollectiveSpec::Part part = spec.part(i);
    if (part.extent.count == 0) continue;
    count(part);
    append_items(i, part);
    if (part.sums()) {
      of_all += part.extent.count;
    } else {
      contributed_[static_cast<std::size_t>(part.contributors.front())] += part.extent.count;
    }
  }
  for (int rank = 0; rank < grid.world_size(); ++rank) {
    std::size_t& contributed = contributed_[static_cast<std::size_t>(rank)];
    contributed = rank == head(grid.node(rank)) ? 0 : contributed + of_all;
    most_contributed_ = std::max(most_contributed_, contributed);
  }
}

void LeaderBuffers::count(const CollectiveSpec::Part& part) {
  const std::size_t elements = part.extent.count;
  const int from = grid_.node(part.contributors.front());
  const int to = grid_.node(part.receivers.front());
  if (!pairs_.empty()) pairs_[static_cast<std::size_t>(from * nodes() + to)] += elements;
  given_[static_cast<std::size_t>(from)] += elements;
  got_[static_cast<std::size_t>(to)] += elements;
}

/// Appends items for part `index` to this node's blocks.
void LeaderBuffers::append_items(std::size_t index, const CollectiveSpec::Part& part) {
  const auto append = [&](int from, int to) {
    const std::span<const int> ranks = members_of(grid_, from, part.contributors);
    std::vector<Item>& items = items_[{from, to}];
    if (!sums_in_one_place_) return items.push_back({index, {ranks.begin(), ranks.end()}});
    for (const int rank : ranks) items.push_back({index, {rank}});
  };
  const auto visit = [&](const RankRange& ranks, auto append_of) {
    if (ranks.size() == 1) return append_of(grid_.node(ranks.front()));
    for (int node = 0; node < nodes(); ++node) append_of(node);
  };
  if (!members_of(grid_, node_, part.receivers).empty()) {
    visit(part.contributors, [&](int from) { append(from, node_); });
  }
  if (members_of(grid_, node_, part.contributors).empty()) return;
  visit(part.receivers, [&](int to) {
    if (to != node_) append(node_, to);
  });
}

int LeaderBuffers::head(int node) const {
  return has_root(spec_.kind) && grid_.node(spec_.root) == node ? spec_.root : grid_.leader(node);
}

std::size_t LeaderBuffers::count(int from, int to) const {
  const std::size_t ranks = grid_.ranks_of_node(from).size();
  switch (spec_.kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kGather:
      return given_[static_cast<std::size_t>(from)];
    case CollectiveKind::kScatter:
      return got_[static_cast<std::size_t>(to)];
    case CollectiveKind::kAllToAll:
      if (!pairs_.empty()) return pairs_[static_cast<std::size_t>(from * nodes() + to)];
      return ranks * grid_.ranks_of_node(to).size() * spec_.part(0).extent.count;
    default:
      return (sums_in_one_place_ ? ranks : 1) * got_[static_cast<std::size_t>(to)];
  }
}

std::span<const LeaderBuffers::Item> LeaderBuffers::items(int from, int to) const {
  const auto it = items_.find({from, to});
  return it == items_.end() ? std::span<const Item>() : it->second;
}

void LeaderBuffers::reserve(std::size_t count) {
  builder_.forgo_bucket();
  memory_ = builder_.staging(most_contributed_ + count);
  memory_.rank = head(node_);
}

Range LeaderBuffers::at(std::size_t offset, std::size_t count) const {
  return {memory_.rank, memory_.region, memory_.offset + most_contributed_ + offset, count};
}

std::vector<int> LeaderBuffers::others() const {
  std::vector<int> ranks = grid_.ranks_of_node(node_);
  std::erase(ranks, head(node_));
  return ranks;
}

Range LeaderBuffers::contributions(int rank) const {
  return {rank, memory_.region, memory_.offset, contributed_[static_cast<std::size_t>(rank)]};
}

void LeaderBuffers::merge_into(std::vector<Transfer>& transfers, const Transfer& next) {
  if (!transfers.empty()) {
    Transfer& last = transfers.back();
    if (last.target + last.count == next.target && last.source + last.count == next.source) {
      last.count += next.count;
      return;
    }
  }
  transfers.push_back(next);
}

void LeaderBuffers::fill(const std::map<int, std::size_t>& targets) {
  if (is_head()) {
    for (const int rank : others()) builder_.await(rank, contributions(rank));
    take(targets);
    for (const int rank : others()) builder_.signal(rank, contributions(rank), Access::kWrite);
    return;
  }
  contribute(targets);
  const Range mine = contributions(builder_.rank());
  builder_.signal(head(node_), mine, Access::kRead);
  builder_.await(head(node_), mine);
}

// The contributions of a rank that is not a head are stored in the order of `targets` and their
// items.
void LeaderBuffers::contribute(const std::map<int, std::size_t>& targets) {
  std::vector<Transfer> packs;
  std::size_t place = memory_.offset;
  for (const auto& [target, offset] : targets) {
    for (const Item& item : items(node_, target)) {
      if (!contains(item.contributors, builder_.rank())) continue;
      const Extent from = extent(item);
      merge_into(packs, {place, from.offset, from.count});
      place += from.count;
    }
  }
  for (const Transfer& pack : packs) {
    builder_.move({builder_.rank(), memory_.region, pack.target, pack.count},
                  builder_.input(pack.source, pack.count));
  }
}

void LeaderBuffers::take(const std::map<int, std::size_t>& targets) {
  std::map<int, std::size_t> places;               // offset of the next contribution, by rank
  std::map<int, std::vector<Transfer>> transfers;  // copies of single contributions, by rank
  for (const auto& [target, offset] : targets) {
    std::size_t next = at(offset, 0).offset;
    for (const Item& item : items(node_, target)) {
      const Extent from = extent(item);
      std::vector<Range> sources;
      for (const int rank : item.contributors) {
        if (rank == builder_.rank()) {
          sources.push_back(builder_.input(from.offset, from.count));
          continue;
        }
        const std::size_t place = places[rank];
        places[rank] += from.count;
        sources.push_back({rank, memory_.region, memory_.offset + place, from.count});
      }
      if (sources.size() > 1) {
        builder_.reduce({builder_.rank(), memory_.region, next, from.count}, std::move(sources),
                        false);
      } else {
        merge_into(transfers[item.contributors.front()], {next, sources[0].offset, from.count});
      }
      next += from.count;
    }
  }
  for (const auto& [rank, all] : transfers) {
    for (const Transfer& each : all) {
      const Range source = rank == builder_.rank()
                               ? builder_.input(each.source, each.count)
                               : Range{rank, memory_.region, each.source, each.count};
      builder_.move({builder_.rank(), memory_.region, each.target, each.count}, source);
    }
  }
}

void LeaderBuffers::deliver(const std::map<int, std::size_t>& sources) {
  if (!is_head()) {
    builder_.await(head(node_), memory_);
    receive(sources);
    builder_.signal(head(node_), memory_, Access::kWrite);
    return;
  }
  for (const int rank : others()) builder_.signal(rank, memory_, Access::kRead);
  receive(sources);
  for (const int rank : others()) builder_.await(rank, memory_);
}

void LeaderBuffers::receive(const std::map<int, std::size_t>& sources) {
  /// Offsets of received items, by part and first contributor.
  std::map<std::size_t, std::map<int, std::size_t>> parts;
  for (const auto& [source, offset] : sources) {
    std::size_t next = at(offset, 0).offset;
    for (const Item& item : items(source, node_)) {
      if (spec_.part(item.part).receives(builder_.rank())) {
        parts[item.part][item.contributors.front()] = next;
      }
      next += extent(item).count;
    }
  }
  std::vector<Transfer> unpacks;
  for (const auto& [index, places] : parts) {
    const CollectiveSpec::Part part = spec_.part(index);
    const Extent& to = part.extent;
    if (!part.sums()) {
      const bool is_there = part.contributes(builder_.rank()) && !builder_.layout().out_of_place;
      if (!is_there) merge_into(unpacks, {to.offset, places.begin()->second, to.count});
      continue;
    }
    std::vector<Range> addends;
    for (const auto& [contributor, place] : places) {
      addends.push_back({memory_.rank, memory_.region, place, to.count});
    }
    builder_.reduce(builder_.home(to.offset, to.count), std::move(addends), true);
  }
  for (const Transfer& each : unpacks) {
    builder_.move(builder_.home(each.target, each.count),
                  {memory_.rank, memory_.region, each.source, each.count});
  }
}

}  // namespace kolo
