#include "compression/sparse_exchange.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "comm/base/check.h"
#include "compression/value_codec.h"

namespace kolo {
namespace {

// Calls visit(tensor, pair in the tensor, element of the group), in ascending order of elements.
template <typename Visit>
void for_pairs(const SparsePlan& plan, const Contribution& contribution, const Visit& visit) {
  std::size_t offset = 0;
  for (std::size_t t = 0; t < contribution.tensors.size(); ++t) {
    const Pairs& pairs = contribution.tensors[t];
    for (std::size_t j = 0; j < pairs.size(); ++j) visit(t, j, offset + pairs.indices[j]);
    offset += plan.tensor_counts[t];
  }
}

Share empty_share(const Contribution& contribution) {
  Share share;
  for (const int exponent : contribution.exponents) {
    share.segments.push_back({.pairs = 0, .exponent = exponent});
  }
  return share;
}

float largest_of(std::span<const float> values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::fabs(value));
  return largest;
}

PayloadPlan payload_plan(DType wire, std::size_t domain, std::size_t segments,
                         std::size_t most_pairs) {
  return {.wire = wire,
          .coding = smaller_coding(domain, most_pairs),
          .domain = domain,
          .segments = segments,
          .most_pairs = most_pairs};
}

}  // namespace

std::size_t SparsePlan::count() const {
  return std::accumulate(tensor_counts.begin(), tensor_counts.end(), std::size_t{0});
}

PayloadPlan SparsePlan::share() const {
  const std::size_t domain = ownership().most_local();
  const std::size_t most = std::min(k, domain);
  return payload_plan(wire, domain, tensor_counts.size(),
                      share_limit == 0 ? most : std::min(share_limit, most));
}

PayloadPlan SparsePlan::result() const {
  const std::size_t domain = ownership().most_local();
  std::size_t most = owner_quota(k, domain, count());
  if (rule == QuotaRule::kGlobalExact) most = std::min(k, domain);
  if (rule == QuotaRule::kLossless) {
    most = std::min(share().most_pairs * static_cast<std::size_t>(ranks), domain);
  }
  return payload_plan(result_wire, domain, 1, most);
}

PayloadPlan SparsePlan::contribution() const {
  return payload_plan(wire, count(), tensor_counts.size(), k);
}

Contribution prepare(const SparsePlan& plan, std::vector<Pairs> selected) {
  check(selected.size() == plan.tensor_counts.size(), "a selection of another group");
  Contribution contribution{.tensors = std::move(selected)};
  for (Pairs& pairs : contribution.tensors) {
    const int exponent = fitting_exponent(plan.wire, largest_of(pairs.values));
    round_to_wire(plan.wire, exponent, pairs.values, pairs.values);
    contribution.exponents.push_back(exponent);
  }
  return contribution;
}

void limit_shares(const SparsePlan& plan, Contribution& contribution) {
  if (plan.share_limit == 0) return;
  const BlockOwnership ownership = plan.ownership();
  std::vector<Pairs> shares(static_cast<std::size_t>(plan.ranks));
  for_pairs(plan, contribution, [&](std::size_t t, std::size_t j, std::size_t element) {
    shares[static_cast<std::size_t>(ownership.owner(element))].add(
        ownership.local(element), contribution.tensors[t].values[j]);
  });
  for (Pairs& share : shares) keep_largest(share, plan.share_limit);
  contribution.tensors = returned(plan, contribution, shares);
}

std::vector<Share> split(const SparsePlan& plan, const Contribution& contribution) {
  const BlockOwnership ownership = plan.ownership();
  std::vector<Share> shares(static_cast<std::size_t>(plan.ranks), empty_share(contribution));
  for_pairs(plan, contribution, [&](std::size_t t, std::size_t j, std::size_t element) {
    Share& share = shares[static_cast<std::size_t>(ownership.owner(element))];
    share.pairs.add(ownership.local(element), contribution.tensors[t].values[j]);
    ++share.segments[t].pairs;
  });
  return shares;
}

Share whole(const SparsePlan& plan, const Contribution& contribution) {
  Share share = empty_share(contribution);
  for_pairs(plan, contribution, [&](std::size_t t, std::size_t j, std::size_t element) {
    share.pairs.add(narrow<std::uint32_t>(element), contribution.tensors[t].values[j]);
    ++share.segments[t].pairs;
  });
  return share;
}

std::vector<Pairs> by_owner(const BlockOwnership& ownership, const Pairs& pairs) {
  std::vector<Pairs> owners(static_cast<std::size_t>(ownership.owners()));
  for (std::size_t j = 0; j < pairs.size(); ++j) {
    const std::size_t element = pairs.indices[j];
    owners[static_cast<std::size_t>(ownership.owner(element))].add(ownership.local(element),
                                                                   pairs.values[j]);
  }
  return owners;
}

std::size_t quota_of(const SparsePlan& plan, int owner) {
  return owner_quota(plan.k, plan.ownership().local_count(owner), plan.count());
}

Share round_result(const SparsePlan& plan, const Pairs& sums, Pairs& rounding) {
  const int exponent = fitting_exponent(plan.result_wire, largest_of(sums.values));
  Share share{.segments = {{.pairs = narrow<std::uint32_t>(sums.size()), .exponent = exponent}},
              .pairs = sums};
  round_to_wire(plan.result_wire, exponent, sums.values, share.pairs.values);
  rounding.clear();
  for (std::size_t j = 0; j < sums.size(); ++j) {
    const float rest = sums.values[j] - share.pairs.values[j];
    if (rest != 0.0f) rounding.add(sums.indices[j], rest);
  }
  return share;
}

void scatter(const SparsePlan& plan, int owner, const Pairs& result, float scale,
             std::span<float> output) {
  const BlockOwnership ownership = plan.ownership();
  for (std::size_t j = 0; j < result.size(); ++j) {
    const std::size_t element = ownership.element(owner, result.indices[j]);
    check(element < output.size(), "a result behind the group's end");
    output[element] = scale * result.values[j];
  }
}

std::vector<Pairs> returned(const SparsePlan& plan, const Contribution& contribution,
                            std::span<const Pairs> results) {
  const BlockOwnership ownership = plan.ownership();
  std::vector<Pairs> tensors(contribution.tensors.size());
  // An owner's numbers ascend with the elements, so that one cursor per result is enough.
  std::vector<std::size_t> cursors(results.size());
  for_pairs(plan, contribution, [&](std::size_t t, std::size_t j, std::size_t element) {
    const auto owner = static_cast<std::size_t>(ownership.owner(element));
    const std::vector<std::uint32_t>& indices = results[owner].indices;
    const std::uint32_t local = ownership.local(element);
    std::size_t& cursor = cursors[owner];
    while (cursor < indices.size() && indices[cursor] < local) ++cursor;
    if (cursor == indices.size() || indices[cursor] != local) return;
    tensors[t].add(contribution.tensors[t].indices[j], contribution.tensors[t].values[j]);
  });
  return tensors;
}

std::vector<Pairs> by_tensor(const SparsePlan& plan, int owner, const Pairs& pairs) {
  const BlockOwnership ownership = plan.ownership();
  std::vector<Pairs> tensors(plan.tensor_counts.size());
  std::size_t t = 0;
  std::size_t begin = 0;
  for (std::size_t j = 0; j < pairs.size(); ++j) {
    const std::size_t element = ownership.element(owner, pairs.indices[j]);
    while (element >= begin + plan.tensor_counts.at(t)) begin += plan.tensor_counts[t++];
    tensors[t].add(static_cast<std::uint32_t>(element - begin), pairs.values[j]);
  }
  return tensors;
}

}  // namespace kolo
