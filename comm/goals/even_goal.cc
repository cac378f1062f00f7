#include "comm/goals/even_goal.h"

#include <algorithm>
#include <array>
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

Goal even_goal(std::string_view kind, int ranks, std::size_t count) {
  const auto* const it = std::ranges::find(kNames, kind, &Name::second);
  check(it != kNames.end(), "collective " + describe_unknown(kind, goal_kind_names()));
  const auto size = static_cast<std::size_t>(ranks);
  const std::vector<std::size_t> parts(size, count / size);
  switch (it->first) {
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

}  // namespace kolo
