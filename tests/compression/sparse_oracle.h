#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "compression/sparse_exchange.h"
#include "tests/compression/sparse_numbers.h"
#include "tests/compression/top_k_cases.h"

namespace kolo::test {

/// Computes a sparse all-reduce of all ranks in plain arithmetic, element by element, without
/// payloads, routes and schedules.
class SparseOracle {
 public:
  explicit SparseOracle(SparsePlan plan) : plan_(std::move(plan)), ownership_(plan_.ownership()) {
    Tensors zeros;
    for (const std::size_t count : plan_.tensor_counts) zeros.emplace_back(count);
    residuals_.assign(ranks(), zeros);
  }

  /// Returns the result: the elements of all tensors, one tensor after the other.
  const std::vector<float>& output() const { return output_; }
  const Tensors& residual(int rank) const { return residuals_[static_cast<std::size_t>(rank)]; }
  /// Returns the number of pairs that `rank` sent to `owner` in the last step. `kept` returns the
  /// number of pairs that an owner sent to all ranks.
  std::size_t sent(int rank, int owner) const {
    return sent_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(owner)];
  }
  std::size_t kept(int owner) const { return kept_[static_cast<std::size_t>(owner)]; }

  /// Computes one step with `ks` pairs of each tensor.
  void step(const std::vector<Tensors>& gradients, const std::vector<std::size_t>& ks,
            float divisor) {
    sums_.assign(plan_.count(), 0.0f);
    has_sum_.assign(plan_.count(), false);
    sent_.assign(ranks(), std::vector<std::size_t>(ranks()));
    std::vector<std::vector<Pair>> pairs(ranks());
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      std::size_t offset = 0;
      for (std::size_t t = 0; t < ks.size(); ++t) {
        send(rank, t, offset, gradients[rank][t], ks[t], pairs[rank]);
        offset += plan_.tensor_counts[t];
      }
    }
    if (plan_.rule == QuotaRule::kQuota) drop_beyond_quotas();
    kept_.assign(ranks(), 0);
    output_.assign(plan_.count(), 0.0f);
    for (std::size_t e = 0; e < output_.size(); ++e) {
      if (!has_sum_[e]) continue;
      output_[e] = sums_[e] / divisor;
      ++kept_[owner_of(e)];
    }
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      for (const Pair& pair : pairs[rank]) {
        if (has_sum_[pair.element]) residuals_[rank][pair.tensor][pair.index] -= pair.value;
      }
    }
  }

 private:
  struct Pair {
    std::size_t tensor, index, element;
    float value;
  };

  std::size_t ranks() const { return static_cast<std::size_t>(plan_.ranks); }
  std::size_t owner_of(std::size_t element) const {
    return static_cast<std::size_t>(ownership_.owner(element));
  }

  void send(std::size_t rank, std::size_t tensor, std::size_t offset,
            const std::vector<float>& gradient, std::size_t k, std::vector<Pair>& pairs) {
    std::vector<float>& residual = residuals_[rank][tensor];
    TopKAnswer top =
        top_k_by_sorting({.name = "", .residual = residual, .gradient = gradient}, 1.0f, k);
    residual = top.sums;
    float largest = 0;
    for (const float value : top.values) largest = std::max(largest, std::fabs(value));
    const int exponent = fitting_exponent(plan_.wire, largest);
    round_to_wire(plan_.wire, exponent, top.values, top.values);
    for (std::size_t j = 0; j < k; ++j) {
      const std::size_t e = offset + top.indices[j];
      sums_[e] = has_sum_[e] ? sums_[e] + top.values[j] : top.values[j];
      has_sum_[e] = true;
      ++sent_[rank][owner_of(e)];
      pairs.push_back({tensor, top.indices[j], e, top.values[j]});
    }
  }

  /// Keeps only the largest sums of each tensor on each owner.
  void drop_beyond_quotas() {
    std::size_t begin = 0;
    for (const std::size_t count : plan_.tensor_counts) {
      std::vector<std::vector<std::size_t>> sums(ranks());
      std::vector<std::size_t> elements(ranks());
      for (std::size_t e = begin; e < begin + count; ++e) {
        ++elements[owner_of(e)];
        if (has_sum_[e]) sums[owner_of(e)].push_back(e);
      }
      for (std::size_t owner = 0; owner < ranks(); ++owner) {
        std::ranges::stable_sort(sums[owner], [&](std::size_t a, std::size_t b) {
          return std::fabs(sums_[a]) > std::fabs(sums_[b]);
        });
        const std::size_t quota = owner_quota(plan_.k, elements[owner], plan_.count());
        for (std::size_t i = quota; i < sums[owner].size(); ++i) has_sum_[sums[owner][i]] = false;
      }
      begin += count;
    }
  }

  SparsePlan plan_;
  BlockOwnership ownership_;
  std::vector<Tensors> residuals_;  // by rank
  std::vector<float> sums_, output_;
  std::vector<bool> has_sum_;
  std::vector<std::vector<std::size_t>> sent_;  // by rank, by owner
  std::vector<std::size_t> kept_;               // by owner
};

}  // namespace kolo::test
