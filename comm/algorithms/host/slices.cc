#include "comm/algorithms/host/slices.h"

#include <algorithm>
#include <map>
#include <utility>

namespace kolo {

std::size_t Slices::add(Slice slice) {
  if (needs_slot(slice)) {
    slice.slot = used_[static_cast<std::size_t>(slice.slot_owner())];
    count(slice.piece, slice.slot_owner());
  }
  if (!keeps(slice.holder)) return kept_.size();
  for (const int reader : slice.readers) told_.insert({slice.holder, reader});
  kept_.push_back(std::move(slice));
  return kept_.size() - 1;
}

void Slices::give_slots(std::size_t slots, std::size_t count, std::uint32_t turns) {
  slots_ = slots;
  slot_count_ = count;
  turns_ = turns;
  for (Slice& slice : kept_) {
    if (needs_slot(slice)) slice.slot %= slots_;
  }
}

std::uint32_t Slices::flags() const {
  std::map<std::pair<int, int>, std::uint32_t> flags;
  std::uint32_t most = 0;
  for (const Slice& slice : kept_) {
    for (const int reader : slice.readers) {
      most = std::max(most, ++flags[{slice.holder, reader}]);
      if (slice.is_put || needs_reply(slice, reader))
        most = std::max(most, ++flags[{reader, slice.holder}]);
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

Slice::Ranks others_of(const ProcessGrid& grid, int node, const RankRange& ranks, int holder) {
  const std::span<const int> members = members_of(grid, node, ranks);
  Slice::Ranks others(members.begin(), members.end());
  std::erase(others, holder);
  return others;
}

Slice relay(const Extent& piece, int contributor, int sender, Slice::Ranks members) {
  const auto head = members.begin() + contributor % static_cast<std::ptrdiff_t>(members.size());
  Slice slice{
      .piece = piece, .holder = *head, .sender = sender, .to_readers = true, .to_holder = true};
  members.erase(head);
  slice.readers = std::move(members);
  return slice;
}

void put(Slices& slices, const Extent& piece, int holder, const RankRange& receivers) {
  const Slice own{.piece = piece, .holder = holder};
  if (receivers.contains(holder)) spread(slices, own, RankRange::one(holder));
  for (const int receiver : receivers) {
    if (receiver == holder) continue;
    slices.add({.piece = piece,
                .holder = holder,
                .readers = {receiver},
                .to_readers = true,
                .is_put = true});
  }
}

void spread(Slices& slices, Slice slice, const RankRange& receivers) {
  const ProcessGrid& grid = slices.grid();
  const int receiver = receivers.front();
  const bool is_kept = slices.keeps(slice.holder) || slices.keeps(receiver);
  if (slice.is_contribution() && receivers.size() == 1 && receiver != slice.holder && !is_kept) {
    // As below; kept short, because there may be as many slices as pairs of ranks.
    slices.count(slice.piece, slice.holder);
    if (!grid.same_node(slice.holder, receiver)) slices.count(slice.piece, receiver);
    return;
  }
  const int own = grid.node(slice.holder);
  slice.to_readers = true;
  slice.to_holder = receivers.contains(slice.holder);
  slice.readers = others_of(grid, own, receivers, slice.holder);
  std::vector<Slice> relayed;
  for_each_other_node(grid, own, receivers, slice.holder, [&](int, Slice::Ranks members) {
    relayed.push_back(relay(slice.piece, slice.holder, slice.holder, std::move(members)));
    slice.recipients.push_back(relayed.back().holder);
  });
  const bool has_one_reader =
      slice.readers.size() == 1 && slice.recipients.empty() && !slice.to_holder;
  slice.is_put = has_one_reader && !slice.addends.empty() && slices.may_be_put(slice);
  slices.add(std::move(slice));
  for (Slice& each : relayed) slices.add(std::move(each));
}

}  // namespace kolo
