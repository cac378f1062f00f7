#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "comm/base/check.h"
#include "compression/error_feedback.h"
#include "compression/exchange_routes.h"
#include "compression/owner_sum.h"
#include "compression/sparse_exchange.h"
#include "tests/compression/sparse_numbers.h"

/// All ranks of a sparse all-reduce in one thread: the same functions that a schedule calls, with
/// every payload encoded, copied and counted as it would be sent.
namespace kolo::test {

/// What one rank sent.
struct WireAccount {
  std::size_t split_bytes = 0, split_messages = 0;
  std::size_t gather_bytes = 0, gather_messages = 0;
};

using Bytes = std::vector<std::byte>;

class SimulatedExchange {
 public:
  SimulatedExchange(SparsePlan plan, std::optional<MomentumCorrection> momentum = std::nullopt)
      : plan_(std::move(plan)) {
    std::vector<FeedbackTensor> tensors;
    for (const std::size_t count : plan_.tensor_counts) {
      tensors.push_back({.name = "tensor " + std::to_string(tensors.size()), .count = count});
    }
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      feedback_.push_back(std::make_unique<ErrorFeedback>(tensors, momentum));
    }
  }

  const SparsePlan& plan() const { return plan_; }
  ErrorFeedback& feedback(int rank) { return *feedback_[index(rank)]; }
  /// Of the last step.
  const std::vector<std::vector<float>>& outputs() const { return outputs_; }
  const std::vector<WireAccount>& accounts() const { return accounts_; }
  const std::vector<Contribution>& contributions() const { return contributions_; }

  /// One step of all ranks: `ks` pairs of each tensor. Returns whether it was not skipped.
  bool step(const std::vector<Tensors>& gradients, const std::vector<std::size_t>& ks,
            ExchangeRoute route, float divisor) {
    accounts_.assign(index(plan_.ranks), {});
    contributions_.clear();
    bool finite = true;
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      std::vector<Pairs> selected(ks.size());
      for (std::size_t t = 0; t < ks.size(); ++t) {
        finite &=
            feedback(rank).fold(t, gradients[index(rank)][t], 1.0f, ks[t], selected[t]).finite;
      }
      contributions_.push_back({.tensors = std::move(selected)});
    }
    if (!finite) {
      for (int rank = 0; rank < plan_.ranks; ++rank) {
        for (std::size_t t = 0; t < ks.size(); ++t) feedback(rank).abort(t);
      }
      return false;
    }
    for (Contribution& contribution : contributions_) prepare(plan_, contribution);
    // Per rank that receives, the results of all owners.
    const auto results = route == ExchangeRoute::kAllGather ? all_gather() : by_owners(route);
    outputs_.assign(index(plan_.ranks), std::vector<float>(plan_.count()));
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      for (int owner = 0; owner < plan_.ranks; ++owner) {
        put(owner, results[index(rank)][index(owner)], divisor, outputs_[index(rank)]);
      }
      std::vector<Pairs> sent(ks.size());
      std::vector<std::size_t> cursors;
      returned(plan_, contributions_[index(rank)], results[index(rank)], cursors, sent);
      for (std::size_t t = 0; t < ks.size(); ++t) feedback(rank).commit(t, sent[t]);
    }
    return true;
  }

 private:
  using Results = std::vector<std::vector<Pairs>>;  ///< By receiver, by owner.

  static std::size_t index(int i) { return static_cast<std::size_t>(i); }

  Bytes encoded(const PayloadPlan& plan, std::span<const PayloadSegment> segments,
                const PairsView& pairs) const {
    Bytes bytes(plan.capacity());
    bytes.resize(encode_payload(plan, segments, pairs, bytes));
    return bytes;
  }

  /// Writes an owner's result, rounded once, to its elements.
  void put(int owner, const Pairs& result, float divisor, std::vector<float>& output) const {
    const BlockOwnership ownership = plan_.ownership();
    for (std::size_t j = 0; j < result.size(); ++j) {
      output.at(ownership.element(owner, result.indices[j])) = result.values[j] / divisor;
    }
  }

  /// Cuts the owners' sums, as every owner does with its own.
  void apply_rule(std::vector<Pairs>& sums) const {
    if (plan_.rule != QuotaRule::kQuota) return;
    for (int owner = 0; owner < plan_.ranks; ++owner) {
      std::vector<std::uint32_t> keys;
      std::vector<QuotaPart> parts;
      quota_parts(plan_, owner, parts);
      keep_largest(sums[index(owner)], parts, keys);
    }
  }

  // Shares of all ranks, by owner, then by source.
  std::vector<std::vector<Bytes>> route_shares(ExchangeRoute route) {
    const int ranks = plan_.ranks;
    std::map<std::pair<int, int>, Bytes> payloads;  // By source and destination.
    for (int rank = 0; rank < ranks; ++rank) {
      Shares shares;
      split(plan_, contributions_[index(rank)], shares);
      for (int owner = 0; owner < ranks; ++owner) {
        payloads[{rank, owner}] =
            encoded(plan_.share(), shares.segments_of(owner), shares.pairs_of(owner));
      }
    }
    if (route == ExchangeRoute::kPairwise) {
      for (int rank = 0; rank < ranks; ++rank) {
        for (int i = 0; i + 1 < ranks; ++i) {
          count_split(rank, {payloads.at({rank, pairwise_destination(ranks, rank, i)})});
        }
      }
    } else {
      pass_on(payloads);
    }
    std::vector<std::vector<Bytes>> by_owner(index(ranks), std::vector<Bytes>(index(ranks)));
    for (auto& [route_of, bytes] : payloads) {
      by_owner[index(route_of.second)][index(route_of.first)] = std::move(bytes);
    }
    return by_owner;
  }

  /// Plays the log-step rounds: throws if a rank is to send what it does not have.
  void pass_on(const std::map<std::pair<int, int>, Bytes>& payloads) {
    const int ranks = plan_.ranks;
    std::map<std::pair<int, int>, int> holder;
    for (const auto& [route, bytes] : payloads) holder[route] = route.first;
    for (int round = 0; round < log_step_rounds(ranks); ++round) {
      auto next = holder;
      for (int rank = 0; rank < ranks; ++rank) {
        std::vector<Bytes> message;
        for (const Forward& forward : log_step_forwards(ranks, rank, round)) {
          const std::pair<int, int> route(forward.source, forward.destination);
          if (holder.at(route) != rank)
            throw std::logic_error("a payload is not where it should be");
          next[route] = log_step_peer(ranks, rank, round);
          message.push_back(payloads.at(route));
        }
        count_split(rank, message);
      }
      holder = std::move(next);
    }
    for (const auto& [route, rank] : holder) {
      if (rank != route.second) throw std::logic_error("a payload did not arrive");
    }
  }

  void count_split(int rank, const std::vector<Bytes>& message) {
    WireAccount& account = accounts_[index(rank)];
    ++account.split_messages;
    for (const Bytes& payload : message) account.split_bytes += payload.size();
  }

  Results by_owners(ExchangeRoute route) {
    const auto shares = route_shares(route);
    std::vector<Pairs> sums(index(plan_.ranks));
    Pairs pairs;
    for (int owner = 0; owner < plan_.ranks; ++owner) {
      OwnerSum sum(plan_.ownership().local_count(owner));
      for (const Bytes& share : shares[index(owner)]) {
        decode_payload(plan_.share(), share, pairs);
        sum.add(pairs);
      }
      sum.take(sums[index(owner)]);
    }
    apply_rule(sums);
    Results results(index(plan_.ranks), std::vector<Pairs>(index(plan_.ranks)));
    for (int owner = 0; owner < plan_.ranks; ++owner) {
      const Pairs& own = sums[index(owner)];
      const std::vector<PayloadSegment> segments{{.pairs = narrow<std::uint32_t>(own.size())}};
      const Bytes bytes = encoded(plan_.result(), segments, own);
      for (int rank = 0; rank < plan_.ranks; ++rank) {
        decode_payload(plan_.result(), bytes, results[index(rank)][index(owner)]);
        if (rank == owner) continue;
        accounts_[index(owner)].gather_bytes += bytes.size();
        ++accounts_[index(owner)].gather_messages;
      }
    }
    return results;
  }

  // Every rank receives everything and does what all owners do.
  Results all_gather() {
    std::vector<Bytes> payloads;
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      Share share;
      whole(plan_, contributions_[index(rank)], share);
      payloads.push_back(encoded(plan_.contribution(), share.segments, share.pairs));
      accounts_[index(rank)].gather_bytes = payloads.back().size() * index(plan_.ranks - 1);
      accounts_[index(rank)].gather_messages = index(plan_.ranks - 1);
    }
    Results results;
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      OwnerSum sum(plan_.count());
      Pairs pairs;
      for (const Bytes& payload : payloads) {
        decode_payload(plan_.contribution(), payload, pairs);
        sum.add(pairs);
      }
      sum.take(pairs);
      std::vector<Pairs> owners(index(plan_.ranks));
      by_owner(plan_.ownership(), pairs, owners);
      apply_rule(owners);
      results.push_back(std::move(owners));
    }
    return results;
  }

  SparsePlan plan_;
  std::vector<std::unique_ptr<ErrorFeedback>> feedback_;
  std::vector<std::vector<float>> outputs_;
  std::vector<WireAccount> accounts_;
  std::vector<Contribution> contributions_;
};

}  // namespace kolo::test
