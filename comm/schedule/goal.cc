#include "comm/schedule/goal.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <utility>

#include "comm/base/check.h"
#include "comm/base/nearest_name.h"

namespace kolo {
namespace {

using Name = std::pair<GoalKind, std::string_view>;

constexpr std::array kNames = {
    Name{GoalKind::kAllReduce, "all-reduce"}, Name{GoalKind::kReduce, "reduce"},
    Name{GoalKind::kBroadcast, "broadcast"},  Name{GoalKind::kReduceScatter, "reduce-scatter"},
    Name{GoalKind::kAllGather, "all-gather"}, Name{GoalKind::kGather, "gather"},
    Name{GoalKind::kScatter, "scatter"},      Name{GoalKind::kAllToAll, "all-to-all"}};

std::vector<int> all_ranks(int world_size) {
  std::vector<int> ranks(static_cast<std::size_t>(world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

int size_of_world(std::span<const std::size_t> counts) { return static_cast<int>(counts.size()); }

/// Parts of `counts` elements; `ranks_of(i)` gives the contributors and the receivers of part i.
template <typename RanksOf>
Goal side_by_side(GoalKind kind, int root, std::span<const std::size_t> counts, RanksOf ranks_of) {
  Goal goal{.kind = kind, .root = root, .parts = {}};
  std::size_t offset = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    auto [contributors, receivers] = ranks_of(static_cast<int>(i));
    goal.parts.push_back({{offset, counts[i]}, std::move(contributors), std::move(receivers)});
    offset += counts[i];
  }
  return goal;
}

using Ranks = std::pair<std::vector<int>, std::vector<int>>;

}  // namespace

std::string_view to_string(GoalKind kind) {
  const auto* const it = std::ranges::find(kNames, kind, &Name::first);
  return it == kNames.end() ? std::string_view() : it->second;
}

std::vector<std::string> goal_kind_names() {
  std::vector<std::string> names;
  for (const Name& name : kNames) names.emplace_back(name.second);
  return names;
}

GoalKind parse_goal_kind(std::string_view name) {
  const auto* const it = std::ranges::find(kNames, name, &Name::second);
  check(it != kNames.end(), "collective " + describe_unknown(name, goal_kind_names()));
  return it->first;
}

Goal even_goal(GoalKind kind, int ranks, std::size_t count) {
  const auto size = static_cast<std::size_t>(ranks);
  const std::vector<std::size_t> parts(size, count / size);
  switch (kind) {
    case GoalKind::kReduce:
      return Goal::reduce(0, ranks, count);
    case GoalKind::kBroadcast:
      return Goal::broadcast(0, ranks, count);
    case GoalKind::kReduceScatter:
      return Goal::reduce_scatter(parts);
    case GoalKind::kAllGather:
      return Goal::all_gather(parts);
    case GoalKind::kGather:
      return Goal::gather(0, parts);
    case GoalKind::kScatter:
      return Goal::scatter(0, parts);
    case GoalKind::kAllToAll:
      return Goal::all_to_all(ranks, std::vector<std::size_t>(size * size, count / size));
    case GoalKind::kAllReduce:
    case GoalKind::kOther:
      break;
  }
  return Goal::all_reduce(ranks, count);
}

Goal Goal::of_tensors(std::vector<Goal> each) {
  Goal all = std::move(each.front());
  all.tensors = each.size();
  for (std::size_t tensor = 1; tensor < each.size(); ++tensor) {
    const std::size_t begin = all.count();
    for (Part& part : each[tensor].parts) {
      part.extent.offset += begin;
      all.parts.push_back(std::move(part));
    }
  }
  return all;
}

Goal merged(Goal goal) {
  if (goal.tensors == 1) return goal;
  Goal one{.kind = goal.kind, .root = goal.root, .parts = {}};
  for (std::size_t i = 0; i < goal.parts_of(0).size(); ++i) {
    Goal::Part part = goal.parts[i];
    part.extent = {one.count(), 0};
    for (std::size_t tensor = 0; tensor < goal.tensors; ++tensor) {
      part.extent.count += goal.parts_of(tensor)[i].extent.count;
    }
    one.parts.push_back(std::move(part));
  }
  return one;
}

Goal Goal::all_reduce(int world_size, std::size_t count) {
  return {.kind = GoalKind::kAllReduce,
          .parts = {{{0, count}, all_ranks(world_size), all_ranks(world_size)}}};
}

Goal Goal::reduce(int root, int world_size, std::size_t count) {
  return {.kind = GoalKind::kReduce,
          .root = root,
          .parts = {{{0, count}, all_ranks(world_size), {root}}}};
}

Goal Goal::broadcast(int root, int world_size, std::size_t count) {
  return {.kind = GoalKind::kBroadcast,
          .root = root,
          .parts = {{{0, count}, {root}, all_ranks(world_size)}}};
}

Goal Goal::reduce_scatter(std::span<const std::size_t> counts) {
  return side_by_side(GoalKind::kReduceScatter, 0, counts, [&](int i) {
    return Ranks{all_ranks(size_of_world(counts)), {i}};
  });
}

Goal Goal::all_gather(std::span<const std::size_t> counts) {
  return side_by_side(GoalKind::kAllGather, 0, counts, [&](int i) {
    return Ranks{{i}, all_ranks(size_of_world(counts))};
  });
}

Goal Goal::gather(int root, std::span<const std::size_t> counts) {
  return side_by_side(GoalKind::kGather, root, counts, [&](int i) { return Ranks{{i}, {root}}; });
}

Goal Goal::scatter(int root, std::span<const std::size_t> counts) {
  return side_by_side(GoalKind::kScatter, root, counts, [&](int i) { return Ranks{{root}, {i}}; });
}

Goal Goal::all_to_all(int world_size, std::span<const std::size_t> counts) {
  return side_by_side(GoalKind::kAllToAll, 0, counts, [&](int i) {
    return Ranks{{i / world_size}, {i % world_size}};
  });
}

bool Goal::is_mutual(int world_size) const {
  const auto ranks = static_cast<std::size_t>(world_size);
  std::vector<bool> hears(ranks * ranks);  // receiver by contributor
  for (const Part& part : parts) {
    if (part.extent.count == 0) continue;
    for (const int receiver : part.receivers) {
      for (const int contributor : part.contributors) {
        hears[static_cast<std::size_t>(receiver) * ranks + static_cast<std::size_t>(contributor)] =
            true;
      }
    }
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) hears[rank * ranks + rank] = true;
  return std::ranges::all_of(hears, std::identity());
}

}  // namespace kolo
