#include "compression/sparse_steps.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "comm/schedule/payload_join.h"

namespace kolo {
namespace {

/// The exchange of one rank. Requests memory for payloads that a step produces or consumes together
/// in succession.
class Exchange {
 public:
  Exchange(ScheduleBuilder& builder, const SparseLayout& layout, ExchangeRoute route)
      : builder_(builder),
        layout_(layout),
        route_(route),
        ranks_(layout.plan.ranks),
        own_(layout.position),
        share_(form_of(layout.plan.share(), layout.plan.usual_share_pairs())),
        result_(form_of(layout.plan.result(), layout.plan.usual_result_pairs())) {}

  void append(const Range& elements, bool finishes) {
    if (elements.count == 0) return;
    if (route_ == ExchangeRoute::kAllGather) {
      all_gather(elements);
    } else {
      through_owners(elements);
    }
    builder_.decode(elements, results_, finishes);
  }

 private:
  /// Capacity of payloads, and their usual size.
  struct Form {
    std::size_t capacity = 0;
    PayloadUse usual = {};
  };
  static Form form_of(const PayloadPlan& plan, std::size_t usual_pairs) {
    return {.capacity = plan.capacity(),
            .usual = {.bytes = plan.bytes(usual_pairs), .entries = usual_pairs}};
  }
  Range payload(std::size_t count, const Form& form) {
    return builder_.payload(count, form.capacity, form.usual);
  }

  int rank_at(int position) const {
    return layout_.ranks[static_cast<std::size_t>(position % ranks_)];
  }
  std::size_t count_of(int owner) const { return layout_.plan.ownership().local_count(owner); }
  Range& result_of(int owner) { return results_[static_cast<std::size_t>(owner)]; }
  /// Calls visit(position) for every other rank, staggered.
  template <typename Visit>
  void for_others(Visit visit) const {
    for (int i = 0; i + 1 < ranks_; ++i) visit(pairwise_destination(ranks_, own_, i));
  }
  static Range side_by_side(const std::vector<Range>& ranges) {
    Range all = ranges.front();
    all.count = ranges.back().end() - all.offset;
    return all;
  }

  /// Results of owners first, first + 1, ..., modulo the number of owners.
  void make_results(int first) {
    results_.resize(static_cast<std::size_t>(ranks_));
    for (int i = 0; i < ranks_; ++i) {
      const int owner = (first + i) % ranks_;
      result_of(owner) = payload(count_of(owner), result_);
    }
  }

  void all_gather(const Range& elements) {
    const Form form = form_of(layout_.plan.contribution(), layout_.plan.k);
    std::vector<Range> contributions;
    for (int i = 0; i < ranks_; ++i) {
      contributions.push_back(payload(elements.count, form));
    }
    const Range& mine = contributions[static_cast<std::size_t>(own_)];
    builder_.codec(CodecVerb::kEncode, mine, {elements});
    for_others([&](int peer) { builder_.send(rank_at(peer), mine); });
    for_others([&](int peer) {
      builder_.recv(rank_at(peer), contributions[static_cast<std::size_t>(peer)]);
    });
    make_results(0);
    builder_.codec(CodecVerb::kMerge, side_by_side(results_), contributions);
  }

  void through_owners(const Range& elements) {
    std::vector<Range> shares;
    for (int owner = 0; owner < ranks_; ++owner) {
      shares.push_back(payload(count_of(owner), share_));
    }
    Range all = shares.front();
    all.count = elements.count;
    builder_.codec(CodecVerb::kEncode, all, {elements});
    const bool by_steps = route_ == ExchangeRoute::kLogStep;
    const std::vector<Range> mine = by_steps ? pass_on(shares) : send_straight(shares);
    make_results(by_steps ? own_ : 0);
    builder_.codec(CodecVerb::kMerge, result_of(own_), mine);
    if (by_steps) {
      gather_by_steps();
    } else {
      for_others([&](int peer) { builder_.send(rank_at(peer), result_of(own_)); });
      for_others([&](int peer) { builder_.recv(rank_at(peer), result_of(peer)); });
    }
  }

  /// Returns the shares of all ranks for this owner, in order.
  std::vector<Range> send_straight(const std::vector<Range>& shares) {
    std::vector<Range> mine(static_cast<std::size_t>(ranks_));
    mine[static_cast<std::size_t>(own_)] = shares[static_cast<std::size_t>(own_)];
    for_others(
        [&](int peer) { builder_.send(rank_at(peer), shares[static_cast<std::size_t>(peer)]); });
    for_others([&](int peer) {
      Range& theirs = mine[static_cast<std::size_t>(peer)];
      theirs = payload(count_of(own_), share_);
      builder_.recv(rank_at(peer), theirs);
    });
    return mine;
  }

  std::vector<Range> pass_on(const std::vector<Range>& shares) {
    std::map<std::pair<int, int>, Range> held;  // By source and destination.
    for (int owner = 0; owner < ranks_; ++owner) {
      held[{own_, owner}] = shares[static_cast<std::size_t>(owner)];
    }
    for (int round = 0; round < log_step_rounds(ranks_); ++round) {
      std::vector<Range> leaving;
      for (const Forward& forward : log_step_forwards(ranks_, own_, round)) {
        leaving.push_back(held.at({forward.source, forward.destination}));
      }
      send_joined(log_step_peer(ranks_, own_, round), leaving, share_);
      const int source = (own_ + ranks_ - (1 << round)) % ranks_;
      std::vector<Range> coming;
      for (const Forward& forward : log_step_forwards(ranks_, source, round)) {
        coming.push_back(payload(count_of(forward.destination), share_));
        held[{forward.source, forward.destination}] = coming.back();
      }
      receive_joined(source, coming, share_);
    }
    std::vector<Range> mine;
    for (int source = 0; source < ranks_; ++source) mine.push_back(held.at({source, own_}));
    return mine;
  }

  // Before round b this rank has the results of 2^b owners, starting with its own.
  void gather_by_steps() {
    for (int distance = 1; distance < ranks_; distance *= 2) {
      std::vector<Range> leaving, coming;
      for (int i = 0; i < std::min(distance, ranks_ - distance); ++i) {
        leaving.push_back(result_of((own_ + i) % ranks_));
        coming.push_back(result_of((own_ + distance + i) % ranks_));
      }
      send_joined((own_ + ranks_ - distance) % ranks_, leaving, result_);
      receive_joined((own_ + distance) % ranks_, coming, result_);
    }
  }

  Range joined(const std::vector<Range>& parts, const Form& part_form) {
    Form form{.capacity = kJoinedHeaderBytes, .usual = {.bytes = kJoinedHeaderBytes}};
    std::size_t count = 0;
    for (const Range& part : parts) {
      count += part.count;
      if (part.count == 0) continue;
      form.capacity += joined_bytes(part_form.capacity);
      form.usual.bytes += joined_bytes(part_form.usual.bytes);
      form.usual.entries += part_form.usual.entries;
    }
    return payload(count, form);
  }

  void send_joined(int peer, const std::vector<Range>& parts, const Form& form) {
    const Range message = joined(parts, form);
    builder_.codec(CodecVerb::kJoin, message, parts);
    builder_.send(rank_at(peer), message);
  }

  void receive_joined(int peer, const std::vector<Range>& parts, const Form& form) {
    const Range message = joined(parts, form);
    builder_.recv(rank_at(peer), message);
    builder_.codec(CodecVerb::kPart, side_by_side(parts), {message});
  }

  ScheduleBuilder& builder_;
  const SparseLayout& layout_;
  const ExchangeRoute route_;
  const int ranks_;
  const int own_;
  const Form share_, result_;
  std::vector<Range> results_;  // by owner
};

}  // namespace

void append_sparse_exchange(ScheduleBuilder& builder, const SparseLayout& layout,
                            ExchangeRoute route, const Range& elements, bool finishes) {
  Exchange(builder, layout, route).append(elements, finishes);
}

}  // namespace kolo
