// Part of Messages: calls while some ranks have joined or closed.

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "comm/message/messages.h"

namespace kolo {

void Messages::end_hopeless(const std::set<int>& joined, const std::set<int>& closed,
                            const ProposalKey& join) {
  has_closed_ = closed.contains(transport_.rank());
  recall(joined, closed, join);
  const auto is_hopeless = [&](const Message& receive) {
    bool are_silent = true, are_closed = true;
    const auto look = [&](int peer) {
      are_silent &= joined.contains(peer) && is_silent(peer, join);  // asks each rank
      are_closed &= closed.contains(peer);
    };
    if (receive.peer != kAnyRank) {
      look(receive.peer);
    } else {
      for (int peer = 0; peer < transport_.world_size(); ++peer) {
        if (peer != transport_.rank() || has_closed_) look(peer);
      }
    }
    return are_silent && (are_closed || receive.is_awaited());
  };
  for (const auto& receive : matching_.withdraw_receives(is_hopeless)) {
    receive->fail(hopeless(*receive, closed));
  }
}

/// Recalls sends for which a joined or closed rank may never post a receive.
void Messages::recall(const std::set<int>& joined, const std::set<int>& closed,
                      const ProposalKey& join) {
  for (auto& [peer, state] : peers_) {
    if (!joined.contains(peer)) continue;
    // Collected first, because sends to this rank itself are refused at once and leave the list.
    std::vector<std::uint64_t> numbers;
    for (Unanswered& waits : state.unanswered) {
      const bool is_due = closed.contains(peer) || waits.message->is_awaited();
      if (waits.recalled == join || !is_due) continue;
      waits.recalled = join;
      numbers.push_back(waits.number);
    }
    for (const std::uint64_t number : numbers) {
      give(peer, {.kind = FrameKind::kRecall, .key = join, .least = number});
    }
  }
}

/// Whether all offers that `peer` sent before it joined were received. The first call asks `peer`.
bool Messages::is_silent(int peer, const ProposalKey& join) {
  Peer& from = peers_[peer];
  if (from.asked != join) {
    from.asked = join;
    give(peer, {.kind = FrameKind::kAsk, .key = join});
  }
  return from.silent == join;
}

// The answer follows the offers, while agreement may overtake them on a way through other ranks.
void Messages::confirm_offers(const ProposalKey& close) {
  for (const auto& [peer, state] : peers_) {
    if (state.next_number == 0 || transport_.is_mapped(peer)) continue;
    unconfirmed_.insert(peer);
    give(peer, {.kind = FrameKind::kAsk, .key = close});
  }
}

Error Messages::hopeless(const Message& receive, const std::set<int>& closed) const {
  const bool is_any = receive.peer == kAnyRank;
  const auto others = static_cast<std::size_t>(transport_.world_size()) - (has_closed_ ? 0 : 1);
  if (is_any ? closed.size() >= others : closed.contains(receive.peer)) {
    return {.code = has_closed_ ? ErrorCode::kShutdown : ErrorCode::kMismatch,
            .rank = transport_.rank(),
            .peer = receive.peer,
            .group = group_,
            .verb = "close",
            .what = fmt::format(
                "{} closed and {} nothing more: {}",
                is_any ? "all other ranks have" : fmt::format("rank {} has", receive.peer),
                is_any ? "send" : "sends", receive.describe())};
  }
  return {.code = ErrorCode::kMismatch,
          .rank = transport_.rank(),
          .peer = receive.peer,
          .group = group_,
          .verb = "join",
          .what = fmt::format(
              "{} joined and {} nothing until rank {} joins, too: {}",
              is_any ? "all other ranks have" : fmt::format("rank {} has", receive.peer),
              is_any ? "send" : "sends", transport_.rank(), receive.describe())};
}

/// Handles kRecall on this rank, which has joined or closed: refuses the message unless a receive
/// has matched it.
void Messages::recalled(int peer, const Frame& frame) {
  const auto early = matching_.withdraw_offer(peer, frame.least);
  if (!early) return;
  const int rank = transport_.rank();
  Error error{.code = ErrorCode::kMismatch, .rank = rank, .peer = peer, .group = group_};
  if (has_closed_) {
    error.verb = "close";
    error.what = fmt::format("rank {} has closed and receives nothing more: {}", rank,
                             describe(peer, early->offer));
  } else {
    error.verb = "join";
    error.what = fmt::format("rank {} has joined and receives nothing until rank {} joins, too: {}",
                             rank, peer, describe(peer, early->offer));
  }
  give(peer, {.kind = FrameKind::kRefuse,
              .least = frame.least,
              .greatest = std::exchange(peers_[peer].owed, 0),
              .error = std::move(error)});
}

}  // namespace kolo
