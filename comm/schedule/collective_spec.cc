#include "comm/schedule/collective_spec.h"

#include <algorithm>
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

static_assert(is_in_order<kCollectiveTraits>());

std::string_view to_string(CollectiveKind kind) { return name_of<kCollectiveTraits>(kind); }

std::vector<std::string> collective_kind_names() {
  std::vector<std::string> names;
  for (const CollectiveKind kind : kAllCollectiveKinds) names.emplace_back(to_string(kind));
  return names;
}

CollectiveKind parse_collective_kind(std::string_view name) {
  for (const CollectiveKind kind : kAllCollectiveKinds) {
    if (to_string(kind) == name) return kind;
  }
  throw UsageError("collective " + describe_unknown(name, collective_kind_names()));
}

CollectiveSpec::CollectiveSpec(CollectiveKind of_kind, int of_root, int world_size,
                               PartExtents counts)
    : kind(of_kind), root(of_root), world_size_(world_size) {
  tensors_.push_back({.counts = std::move(counts)});
}

CollectiveSpec::Roles CollectiveSpec::roles(std::size_t part_of_tensor) const {
  const auto index = static_cast<int>(part_of_tensor);
  const auto [contributor, receiver] = has_pairs(kind)
                                           ? std::pair(index / world_size_, index % world_size_)
                                           : std::pair(index, index);
  const auto ranks = [&](PartRanks which, int own) {
    if (which == PartRanks::kOwn) return RankRange::one(own);
    return which == PartRanks::kRoot ? RankRange::one(root) : RankRange::all(world_size_);
  };
  if (kind == CollectiveKind::kOther) return (*others_)[part_of_tensor];
  return {ranks(traits_of(kind).contributors, contributor),
          ranks(traits_of(kind).receivers, receiver)};
}

CollectiveSpec::Part CollectiveSpec::part(std::size_t index) const {
  const std::size_t each = parts_of_tensor();
  const Tensor& tensor = tensors_[index / each];
  Extent extent = tensor.counts[index % each];
  extent.offset += tensor.begin;
  const Roles of_part = roles(index % each);
  return {extent, of_part.contributors, of_part.receivers};
}

std::size_t CollectiveSpec::count() const {
  return tensors_.empty() ? 0 : tensors_.back().begin + tensors_.back().counts.total();
}

bool CollectiveSpec::has_equal_parts() const {
  return std::ranges::all_of(tensors_, [](const Tensor& each) { return each.counts.are_equal(); });
}

bool CollectiveSpec::has_elements(std::size_t part_of_tensor) const {
  return std::ranges::any_of(tensors_, [part_of_tensor](const Tensor& tensor) {
    return tensor.counts[part_of_tensor].count > 0;
  });
}

bool CollectiveSpec::is_mutual() const {
  if (world_size_ == 1) return true;
  if (kind == CollectiveKind::kOther) return others_are_mutual();
  if (has_root(kind)) return false;
  for (std::size_t i = 0; i < parts_of_tensor(); ++i) {
    const auto [contributors, receivers] = roles(i);
    const bool is_kept = contributors == receivers && contributors.size() == 1;
    if (!is_kept && !has_elements(i)) return false;
  }
  return true;
}

bool CollectiveSpec::others_are_mutual() const {
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

CollectiveSpec even_spec(CollectiveKind kind, int ranks, std::size_t count) {
  const auto size = static_cast<std::size_t>(ranks);
  if (!has_parts(kind)) return CollectiveSpec::of(kind, 0, ranks, {1, count});
  return CollectiveSpec::of(kind, 0, ranks, {has_pairs(kind) ? size * size : size, count / size});
}

CollectiveSpec CollectiveSpec::of_tensors(const std::vector<CollectiveSpec>& each) {
  CollectiveSpec all = each.front();
  for (std::size_t i = 1; i < each.size(); ++i) {
    all.tensors_.push_back({all.count(), each[i].tensors_.front().counts});
  }
  return all;
}

CollectiveSpec merged(const CollectiveSpec& spec) {
  if (spec.tensors() == 1) return spec;
  const std::size_t parts = spec.parts_of_tensor();
  const auto count_of = [&](std::size_t part) {
    std::size_t count = 0;
    for (const CollectiveSpec::Tensor& tensor : spec.tensors_) count += tensor.counts[part].count;
    return count;
  };
  CollectiveSpec one = spec;
  if (spec.has_equal_parts()) {
    one.tensors_ = {{.counts = PartExtents(parts, count_of(0))}};
    return one;
  }
  std::vector<std::size_t> counts(parts);
  for (std::size_t i = 0; i < parts; ++i) counts[i] = count_of(i);
  one.tensors_ = {{.counts = counts}};
  return one;
}

CollectiveSpec CollectiveSpec::of_parts(int world_size, const std::vector<Part>& parts) {
  std::vector<std::size_t> counts;
  std::vector<Roles> roles;
  for (const Part& part : parts) {
    counts.push_back(part.extent.count);
    roles.push_back({part.contributors, part.receivers});
  }
  CollectiveSpec spec(CollectiveKind::kOther, 0, world_size, counts);
  spec.others_ = std::make_shared<const std::vector<Roles>>(std::move(roles));
  return spec;
}

}  // namespace kolo
