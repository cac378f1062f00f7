// Messages while some ranks have run out of data.

#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "comm/message/messages.h"

namespace kolo {

void Messages::end_hopeless(const std::set<int>& joined, const Topic& join) {
  recall(joined, join);
  const auto others = static_cast<std::size_t>(transport_.world_size() - 1);
  const auto is_hopeless = [&](const Message& receive) {
    if (!receive.is_awaited()) return false;
    if (receive.peer != kAnyRank)
      return joined.contains(receive.peer) && is_silent(receive.peer, join);
    if (joined.size() < others) return false;
    bool are_silent = true;  // Each is asked.
    for (const int peer : joined) are_silent &= is_silent(peer, join);
    return are_silent;
  };
  for (const auto& receive : matching_.withdraw_receives(is_hopeless)) {
    receive->fail(hopeless(*receive));
  }
}

/// Asks for the sends that wait for receives which do not come.
void Messages::recall(const std::set<int>& joined, const Topic& join) {
  for (auto& [peer, state] : peers_) {
    if (!joined.contains(peer)) continue;
    for (Unanswered& waits : state.unanswered) {
      if (waits.recalled == join || !waits.message->is_awaited()) continue;
      waits.recalled = join;
      give(peer, {.kind = FrameKind::kRecall, .topic = join, .least = waits.number});
    }
  }
}

/// Whether all that `peer` sent before it joined is here.
bool Messages::is_silent(int peer, const Topic& join) {
  Peer& from = peers_[peer];
  if (from.asked != join) {
    from.asked = join;
    give(peer, {.kind = FrameKind::kAsk, .topic = join});
  }
  return from.silent == join;
}

Error Messages::hopeless(const Message& receive) const {
  const bool is_any = receive.peer == kAnyRank;
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

/// This rank has joined. If the message has a receive, its sender hears of that.
void Messages::recalled(int peer, const Frame& frame) {
  const auto early = matching_.withdraw_offer(peer, frame.least);
  if (!early) return;
  const int rank = transport_.rank();
  give(peer, {.kind = FrameKind::kRefuse,
              .least = frame.least,
              .greatest = std::exchange(peers_[peer].owed, 0),
              .error = {.code = ErrorCode::kMismatch,
                        .rank = rank,
                        .peer = peer,
                        .group = group_,
                        .verb = "join",
                        .what = fmt::format(
                            "rank {} has joined and receives nothing until rank {} joins, too: {}",
                            rank, peer, describe(peer, early->offer))}});
}

}  // namespace kolo
