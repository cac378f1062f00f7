#include "compression/sparse_exchange.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "comm/base/check.h"
#include "compression/kernels/top_k_selector.h"
#include "compression/payload.h"

namespace kolo {
namespace {

constexpr std::size_t kWord = 64;  // in bits

// Calls visit(tensor, pair in the tensor, element of the bucket), in ascending order of elements.
template <typename Visit>
void for_pairs(const SparsePlan& plan, const Contribution& contribution, const Visit& visit) {
  std::size_t offset = 0;
  for (std::size_t t = 0; t < contribution.tensors.size(); ++t) {
    const Pairs& pairs = contribution.tensors[t];
    for (std::size_t j = 0; j < pairs.size(); ++j) visit(t, j, offset + pairs.indices[j]);
    offset += plan.tensor_counts[t];
  }
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

std::string_view to_string(ExchangeRoute route) {
  switch (route) {
    case ExchangeRoute::kAllGather:
      return "allgather";
    case ExchangeRoute::kPairwise:
      return "pairwise";
  }
  return "unknown";
}

int pairwise_destination(int ranks, int rank, int step) { return (rank + 1 + step) % ranks; }

BlockOwnership::BlockOwnership(std::size_t count, int owners) : count_(count) {
  check(owners > 0, "a compressed bucket has at least one owner");
  owners_ = static_cast<std::size_t>(owners);
  constexpr std::size_t kBlocksPerOwner = 64;
  const std::size_t fair = count / (owners_ * kBlocksPerOwner);
  block_ = std::clamp<std::size_t>(std::bit_floor(fair), 64, 4096);
  check(most_local() <= std::size_t{1} << 32, "an owner's elements are numbered in 32 bits");
}

std::size_t BlockOwnership::local_count_below(int owner, std::size_t end) const {
  const std::size_t round = block_ * owners_;
  const std::size_t last_round = end % round;
  const std::size_t before = static_cast<std::size_t>(owner) * block_;
  const std::size_t rest = last_round > before ? std::min(last_round - before, block_) : 0;
  return end / round * block_ + rest;
}

std::size_t owner_quota(std::size_t k, std::size_t local_count, std::size_t count) {
  if (count == 0) return 0;
  check(k <= count && local_count <= count && count <= std::size_t{1} << 32,
        "a quota is a share of what there is");
  return (k * local_count + count - 1) / count;
}

OwnerSum::OwnerSum(std::size_t local_count)
    : sums_(local_count), touched_((local_count + kWord - 1) / kWord) {}

void OwnerSum::add(const Pairs& pairs) {
  for (std::size_t j = 0; j < pairs.size(); ++j) {
    const std::uint32_t i = pairs.indices[j];
    check(i < sums_.size(), "a pair for another owner");
    const std::uint64_t bit = std::uint64_t{1} << i % kWord;
    std::uint64_t& word = touched_[i / kWord];
    sums_[i] = (word & bit) != 0 ? sums_[i] + pairs.values[j] : pairs.values[j];
    word |= bit;
  }
}

void OwnerSum::take(Pairs& sums) {
  sums.clear();
  for (std::size_t w = 0; w < touched_.size(); ++w) {
    for (std::uint64_t word = touched_[w]; word != 0; word &= word - 1) {
      const std::size_t i = w * kWord + static_cast<std::size_t>(std::countr_zero(word));
      sums.add(static_cast<std::uint32_t>(i), sums_[i]);
    }
    touched_[w] = 0;
  }
}

void keep_largest(Pairs& sums, std::span<const QuotaPart> parts, std::vector<std::uint32_t>& keys) {
  std::size_t begin = 0;
  std::size_t kept = 0;
  for (const QuotaPart& part : parts) {
    std::size_t end = begin;
    while (end < sums.size() && sums.indices[end] < part.end) ++end;
    const std::size_t count = end - begin;
    if (count > 0 && part.quota > 0) {
      radix::NthKey nth{.need = count};
      if (count > part.quota) {
        nth = radix::nth_largest_key(std::span(sums.values).subspan(begin, count), part.quota, 0,
                                     keys);
      }
      kept += keep_largest({&sums.indices[begin], &sums.values[begin]}, count, nth,
                           {&sums.indices[kept], &sums.values[kept]});
    }
    begin = end;
  }
  sums.indices.resize(kept);
  sums.values.resize(kept);
}

std::size_t SparsePlan::count() const {
  return std::accumulate(tensor_counts.begin(), tensor_counts.end(), std::size_t{0});
}

PayloadPlan SparsePlan::share() const {
  const std::size_t domain = ownership().most_local();
  return payload_plan(wire, domain, tensor_counts.size(), std::min(k, domain));
}

PayloadPlan SparsePlan::result() const {
  const std::size_t domain = ownership().most_local();
  std::size_t most = most_by_quota();
  if (rule == QuotaRule::kLossless) {
    most = std::min(share().most_pairs * static_cast<std::size_t>(ranks), domain);
  }
  return payload_plan(DType::kFloat32, domain, 1, most);
}

PayloadPlan SparsePlan::contribution() const {
  return payload_plan(wire, count(), tensor_counts.size(), k);
}

std::size_t SparsePlan::usual_share_pairs() const {
  const auto owners = static_cast<std::size_t>(ranks);
  return std::min((k + owners - 1) / owners, share().most_pairs);
}

std::size_t SparsePlan::usual_result_pairs() const {
  const std::size_t domain = ownership().most_local();
  return rule == QuotaRule::kLossless ? std::min(k, domain) : most_by_quota();
}

std::size_t SparsePlan::most_by_quota() const {
  const std::size_t domain = ownership().most_local();
  const std::size_t roundings = tensor_counts.empty() ? 0 : tensor_counts.size() - 1;
  return std::min(owner_quota(k, domain, count()) + roundings, domain);
}

std::span<const PayloadSegment> Shares::segments_of(int owner) const {
  const std::size_t tensors = segments.size() / (begins.size() - 1);
  return std::span(segments).subspan(static_cast<std::size_t>(owner) * tensors, tensors);
}

PairsView Shares::pairs_of(int owner) const {
  const auto i = static_cast<std::size_t>(owner);
  return PairsView(pairs).part(begins[i], begins[i + 1] - begins[i]);
}

void prepare(const SparsePlan& plan, Contribution& contribution) {
  check(contribution.tensors.size() == plan.tensor_counts.size(), "a selection of another group");
  contribution.exponents.clear();
  for (Pairs& pairs : contribution.tensors) {
    const int exponent = fitting_exponent(plan.wire, largest_of(pairs.values));
    round_to_wire(plan.wire, exponent, pairs.values, pairs.values);
    contribution.exponents.push_back(exponent);
  }
}

void split(const SparsePlan& plan, const Contribution& contribution, Shares& shares) {
  const BlockOwnership ownership = plan.ownership();
  const std::size_t tensors = plan.tensor_counts.size();
  const auto owners = static_cast<std::size_t>(plan.ranks);
  shares.segments.resize(owners * tensors);
  for (std::size_t i = 0; i < shares.segments.size(); ++i) {
    shares.segments[i] = {.pairs = 0, .exponent = contribution.exponents[i % tensors]};
  }
  shares.begins.assign(owners + 1, 0);
  const auto owner_of = [&](std::size_t element) {
    return static_cast<std::size_t>(ownership.owner(element));
  };
  for_pairs(plan, contribution, [&](std::size_t t, std::size_t, std::size_t element) {
    ++shares.segments[owner_of(element) * tensors + t].pairs;
    ++shares.begins[owner_of(element) + 1];
  });
  std::partial_sum(shares.begins.begin(), shares.begins.end(), shares.begins.begin());
  shares.pairs.indices.resize(shares.begins.back());
  shares.pairs.values.resize(shares.begins.back());
  // Advances each owner's start to its end, which is the start of the next owner.
  for_pairs(plan, contribution, [&](std::size_t t, std::size_t j, std::size_t element) {
    const std::size_t place = shares.begins[owner_of(element)]++;
    shares.pairs.indices[place] = ownership.local(element);
    shares.pairs.values[place] = contribution.tensors[t].values[j];
  });
  std::rotate(shares.begins.begin(), std::prev(shares.begins.end()), shares.begins.end());
  shares.begins.front() = 0;
}

void whole(const SparsePlan& plan, const Contribution& contribution, Share& share) {
  share.pairs.clear();
  share.segments.clear();
  for (const int exponent : contribution.exponents) {
    share.segments.push_back({.pairs = 0, .exponent = exponent});
  }
  for_pairs(plan, contribution, [&](std::size_t t, std::size_t j, std::size_t element) {
    share.pairs.add(narrow<std::uint32_t>(element), contribution.tensors[t].values[j]);
    ++share.segments[t].pairs;
  });
}

void by_owner(const BlockOwnership& ownership, const Pairs& pairs, std::span<Pairs> owners) {
  for (Pairs& owner : owners) owner.clear();
  for (std::size_t j = 0; j < pairs.size(); ++j) {
    const std::size_t element = pairs.indices[j];
    owners[static_cast<std::size_t>(ownership.owner(element))].add(ownership.local(element),
                                                                   pairs.values[j]);
  }
}

void quota_parts(const SparsePlan& plan, int owner, std::vector<QuotaPart>& parts) {
  const BlockOwnership ownership = plan.ownership();
  parts.clear();
  std::size_t end = 0;
  std::size_t before = 0;
  for (const std::size_t count : plan.tensor_counts) {
    end += count;
    const std::size_t below = ownership.local_count_below(owner, end);
    parts.push_back({.end = below, .quota = owner_quota(plan.k, below - before, plan.count())});
    before = below;
  }
}

void returned(const SparsePlan& plan, const Contribution& contribution,
              std::span<const Pairs> results, std::vector<std::size_t>& cursors,
              std::span<Pairs> tensors) {
  const BlockOwnership ownership = plan.ownership();
  for (Pairs& tensor : tensors) tensor.clear();
  // An owner's indices ascend with the elements, so one cursor per result is enough.
  cursors.assign(results.size(), 0);
  for_pairs(plan, contribution, [&](std::size_t t, std::size_t j, std::size_t element) {
    const auto owner = static_cast<std::size_t>(ownership.owner(element));
    const std::vector<std::uint32_t>& indices = results[owner].indices;
    const std::uint32_t local = ownership.local(element);
    std::size_t& cursor = cursors[owner];
    while (cursor < indices.size() && indices[cursor] < local) ++cursor;
    if (cursor == indices.size() || indices[cursor] != local) return;
    tensors[t].add(contribution.tensors[t].indices[j], contribution.tensors[t].values[j]);
  });
}

}  // namespace kolo
