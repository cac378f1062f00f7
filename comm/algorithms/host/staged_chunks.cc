#include "comm/algorithms/host/staged_chunks.h"

#include <algorithm>
#include <map>
#include <utility>

namespace kolo {

std::size_t StagedChunks::add(StagedChunk chunk) {
  if (needs_slot(chunk)) {
    chunk.slot = used_[static_cast<std::size_t>(chunk.slot_owner())];
    count(chunk.piece, chunk.slot_owner());
  }
  if (!keeps(chunk.holder)) return kept_.size();
  for (const int reader : chunk.readers) told_.insert({chunk.holder, reader});
  kept_.push_back(std::move(chunk));
  return kept_.size() - 1;
}

void StagedChunks::give_slots(std::size_t slots, std::size_t count, std::uint32_t turns) {
  slots_ = slots;
  slot_count_ = count;
  turns_ = turns;
  for (StagedChunk& chunk : kept_) {
    if (needs_slot(chunk)) chunk.slot %= slots_;
  }
}

std::uint32_t StagedChunks::flags() const {
  std::map<std::pair<int, int>, std::uint32_t> flags;
  std::uint32_t most = 0;
  for (const StagedChunk& chunk : kept_) {
    for (const int reader : chunk.readers) {
      most = std::max(most, ++flags[{chunk.holder, reader}]);
      if (chunk.is_put || needs_reply(chunk, reader))
        most = std::max(most, ++flags[{reader, chunk.holder}]);
    }
  }
  return most;
}

std::span<const int> members_of(const ProcessGrid& grid, int node, const RankRange& ranks) {
  const std::vector<int>& all = grid.ranks_of_node(node);
  const auto begin = std::ranges::lower_bound(all, ranks.front());
  const auto end = std::lower_bound(begin, all.end(), ranks.end_rank());
  return {begin, end};
}

StagedChunk::Ranks others_of(const ProcessGrid& grid, int node, const RankRange& ranks,
                             int holder) {
  const std::span<const int> members = members_of(grid, node, ranks);
  StagedChunk::Ranks others(members.begin(), members.end());
  std::erase(others, holder);
  return others;
}

StagedChunk relay(const Extent& piece, int contributor, int sender, StagedChunk::Ranks members) {
  const auto head = members.begin() + contributor % static_cast<std::ptrdiff_t>(members.size());
  StagedChunk chunk{
      .piece = piece, .holder = *head, .sender = sender, .to_readers = true, .to_holder = true};
  members.erase(head);
  chunk.readers = std::move(members);
  return chunk;
}

void put(StagedChunks& chunks, const Extent& piece, int holder, const RankRange& receivers) {
  const StagedChunk own{.piece = piece, .holder = holder};
  if (receivers.contains(holder)) spread(chunks, own, RankRange::one(holder));
  for (const int receiver : receivers) {
    if (receiver == holder) continue;
    chunks.add({.piece = piece,
                .holder = holder,
                .readers = {receiver},
                .to_readers = true,
                .is_put = true});
  }
}

void spread(StagedChunks& chunks, StagedChunk chunk, const RankRange& receivers) {
  const ProcessGrid& grid = chunks.grid();
  const int receiver = receivers.front();
  const bool is_kept = chunks.keeps(chunk.holder) || chunks.keeps(receiver);
  if (chunk.is_contribution() && receivers.size() == 1 && receiver != chunk.holder && !is_kept) {
    // A shortcut for the code below, because there may be as many chunks as pairs of ranks.
    chunks.count(chunk.piece, chunk.holder);
    if (!grid.same_node(chunk.holder, receiver)) chunks.count(chunk.piece, receiver);
    return;
  }
  const int own = grid.node(chunk.holder);
  chunk.to_readers = true;
  chunk.to_holder = receivers.contains(chunk.holder);
  chunk.readers = others_of(grid, own, receivers, chunk.holder);
  std::vector<StagedChunk> relayed;
  for_each_other_node(grid, own, receivers, chunk.holder, [&](int, StagedChunk::Ranks members) {
    relayed.push_back(relay(chunk.piece, chunk.holder, chunk.holder, std::move(members)));
    chunk.recipients.push_back(relayed.back().holder);
  });
  const bool has_one_reader =
      chunk.readers.size() == 1 && chunk.recipients.empty() && !chunk.to_holder;
  chunk.is_put = has_one_reader && !chunk.addends.empty() && chunks.may_be_put(chunk);
  chunks.add(std::move(chunk));
  for (StagedChunk& each : relayed) chunks.add(std::move(each));
}

}  // namespace kolo
