#include "comm/schedule/goal.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "comm/base/check.h"
#include "comm/base/nearest_name.h"

namespace kolo {

PartExtents::PartExtents(std::span<const std::size_t> counts, std::size_t times)
    : parts_(counts.size()) {
  if (std::ranges::adjacent_find(counts, std::not_equal_to()) == counts.end()) {
    each_ = counts.empty() ? 0 : times * counts.front();
    return;
  }
  std::vector<std::size_t> ends;
  ends.reserve(counts.size());
  for (const std::size_t count : counts) {
    ends.push_back((ends.empty() ? 0 : ends.back()) + times * count);
  }
  ends_ = std::make_shared<const std::vector<std::size_t>>(std::move(ends));
}

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

GoalKind parse_goal_kind(std::string_view name) {
  const auto* const it = std::ranges::find(kNames, name, &Name::second);
  check(it != kNames.end(), "collective " + describe_unknown(name, goal_kind_names()));
  return it->first;
}

Goal::Goal(GoalKind of_kind, int of_root, int world_size, PartExtents counts)
    : kind(of_kind), root(of_root), world_size_(world_size) {
  tensors_.push_back({.counts = std::move(counts)});
}

Goal::Roles Goal::roles(std::size_t part_of_tensor) const {
  const RankRange all = RankRange::all(world_size_);
  const RankRange at_root = RankRange::one(root);
  const auto index = static_cast<int>(part_of_tensor);
  switch (kind) {
    case GoalKind::kAllReduce:
      return {all, all};
    case GoalKind::kReduce:
      return {all, at_root};
    case GoalKind::kBroadcast:
      return {at_root, all};
    case GoalKind::kReduceScatter:
      return {all, RankRange::one(index)};
    case GoalKind::kAllGather:
      return {RankRange::one(index), all};
    case GoalKind::kGather:
      return {RankRange::one(index), at_root};
    case GoalKind::kScatter:
      return {at_root, RankRange::one(index)};
    case GoalKind::kAllToAll:
      return {RankRange::one(index / world_size_), RankRange::one(index % world_size_)};
    case GoalKind::kOther:
      break;
  }
  return (*others_)[part_of_tensor];
}

Goal::Part Goal::part(std::size_t index) const {
  const std::size_t each = parts_of_tensor();
  const Tensor& tensor = tensors_[index / each];
  Extent extent = tensor.counts[index % each];
  extent.offset += tensor.begin;
  const Roles of_part = roles(index % each);
  return {extent, of_part.contributors, of_part.receivers};
}

std::size_t Goal::count() const {
  return tensors_.empty() ? 0 : tensors_.back().begin + tensors_.back().counts.total();
}

bool Goal::has_equal_parts() const {
  return std::ranges::all_of(tensors_, [](const Tensor& each) { return each.counts.are_equal(); });
}

bool Goal::has_elements(std::size_t part_of_tensor) const {
  return std::ranges::any_of(tensors_, [part_of_tensor](const Tensor& tensor) {
    return tensor.counts[part_of_tensor].count > 0;
  });
}

bool Goal::is_mutual() const {
  if (world_size_ == 1) return true;
  switch (kind) {
    case GoalKind::kReduce:
    case GoalKind::kBroadcast:
    case GoalKind::kGather:
    case GoalKind::kScatter:
      return false;
    case GoalKind::kOther:
      return others_are_mutual();
    case GoalKind::kAllReduce:
    case GoalKind::kReduceScatter:
    case GoalKind::kAllGather:
    case GoalKind::kAllToAll:
      break;
  }
  for (std::size_t i = 0; i < parts_of_tensor(); ++i) {
    const auto [contributors, receivers] = roles(i);
    const bool is_kept = contributors == receivers && contributors.size() == 1;
    if (!is_kept && !has_elements(i)) return false;
  }
  return true;
}

bool Goal::others_are_mutual() const {
  for (int rank = 0; rank < world_size_; ++rank) {
    std::vector<bool> hears(static_cast<std::size_t>(world_size_));
    hears[static_cast<std::size_t>(rank)] = true;
    for (const Part& part : parts()) {
      if (part.extent.count == 0 || !part.receives(rank)) continue;
      for (const int from : part.contributors) hears[static_cast<std::size_t>(from)] = true;
    }
    if (!std::ranges::all_of(hears, std::identity())) return false;
  }
  return true;
}

Goal even_goal(GoalKind kind, int ranks, std::size_t count) {
  const auto size = static_cast<std::size_t>(ranks);
  const PartExtents parts(size, count / size);
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
      return Goal::all_to_all(ranks, PartExtents(size * size, count / size));
    case GoalKind::kAllReduce:
    case GoalKind::kOther:
      break;
  }
  return Goal::all_reduce(ranks, count);
}

Goal Goal::of_tensors(const std::vector<Goal>& each) {
  Goal all = each.front();
  for (std::size_t i = 1; i < each.size(); ++i) {
    all.tensors_.push_back({all.count(), each[i].tensors_.front().counts});
  }
  return all;
}

Goal merged(const Goal& goal) {
  if (goal.tensors() == 1) return goal;
  const std::size_t parts = goal.parts_of_tensor();
  const auto count_of = [&](std::size_t part) {
    std::size_t count = 0;
    for (const Goal::Tensor& tensor : goal.tensors_) count += tensor.counts[part].count;
    return count;
  };
  Goal one = goal;
  if (goal.has_equal_parts()) {
    one.tensors_ = {{.counts = PartExtents(parts, count_of(0))}};
    return one;
  }
  std::vector<std::size_t> counts(parts);
  for (std::size_t i = 0; i < parts; ++i) counts[i] = count_of(i);
  one.tensors_ = {{.counts = counts}};
  return one;
}

Goal Goal::all_reduce(int world_size, std::size_t count) {
  return {GoalKind::kAllReduce, 0, world_size, {1, count}};
}

Goal Goal::reduce(int root, int world_size, std::size_t count) {
  return {GoalKind::kReduce, root, world_size, {1, count}};
}

Goal Goal::broadcast(int root, int world_size, std::size_t count) {
  return {GoalKind::kBroadcast, root, world_size, {1, count}};
}

Goal Goal::reduce_scatter(const PartExtents& counts) {
  return {GoalKind::kReduceScatter, 0, static_cast<int>(counts.size()), counts};
}

Goal Goal::all_gather(const PartExtents& counts) {
  return {GoalKind::kAllGather, 0, static_cast<int>(counts.size()), counts};
}

Goal Goal::gather(int root, const PartExtents& counts) {
  return {GoalKind::kGather, root, static_cast<int>(counts.size()), counts};
}

Goal Goal::scatter(int root, const PartExtents& counts) {
  return {GoalKind::kScatter, root, static_cast<int>(counts.size()), counts};
}

Goal Goal::all_to_all(int world_size, const PartExtents& counts) {
  return {GoalKind::kAllToAll, 0, world_size, counts};
}

Goal Goal::of_parts(int world_size, const std::vector<Part>& parts) {
  std::vector<std::size_t> counts;
  std::vector<Roles> roles;
  for (const Part& part : parts) {
    counts.push_back(part.extent.count);
    roles.push_back({part.contributors, part.receivers});
  }
  Goal goal(GoalKind::kOther, 0, world_size, counts);
  goal.others_ = std::make_shared<const std::vector<Roles>>(std::move(roles));
  return goal;
}

}  // namespace kolo
