#include "comm/algorithms/host/slices.h"

#include <algorithm>
#include <map>
#include <utility>

#include "comm/base/contains.h"

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

void Slices::give_slots(std::size_t most, std::uint32_t turns) {
  turns_ = turns;
  slots_ = std::min(most_used_, most);
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

std::vector<std::vector<int>> by_node(const ProcessGrid& grid, std::span<const int> ranks,
                                      int holder) {
  std::vector<std::vector<int>> members(static_cast<std::size_t>(grid.num_nodes()));
  for (const int rank : ranks) {
    if (rank != holder) members[static_cast<std::size_t>(grid.node(rank))].push_back(rank);
  }
  return members;
}

Slice relay(const Extent& piece, int contributor, int sender, Slice::Ranks members) {
  const auto head = members.begin() + contributor % static_cast<std::ptrdiff_t>(members.size());
  Slice slice{
      .piece = piece, .holder = *head, .sender = sender, .to_readers = true, .to_holder = true};
  members.erase(head);
  slice.readers = std::move(members);
  return slice;
}

void put(Slices& slices, const Extent& piece, int holder, std::span<const int> receivers) {
  Slice own{.piece = piece, .holder = holder};
  if (contains(receivers, holder)) spread(slices, own, std::span(&holder, 1));
  for (const int receiver : receivers) {
    if (receiver == holder) continue;
    slices.add({.piece = piece,
                .holder = holder,
                .readers = {receiver},
                .to_readers = true,
                .is_put = true});
  }
}

void spread(Slices& slices, Slice slice, std::span<const int> receivers) {
  slice.to_readers = true;
  slice.to_holder = contains(receivers, slice.holder);
  const auto own = static_cast<std::size_t>(slices.grid().node(slice.holder));
  std::vector<std::vector<int>> members = by_node(slices.grid(), receivers, slice.holder);
  slice.readers = std::move(members[own]);
  std::vector<Slice> relayed;
  for (std::size_t step = 1; step < members.size(); ++step) {
    std::vector<int>& next = members[(own + step) % members.size()];
    if (next.empty()) continue;
    relayed.push_back(relay(slice.piece, slice.holder, slice.holder, std::move(next)));
    slice.recipients.push_back(relayed.back().holder);
  }
  const bool has_one_reader =
      slice.readers.size() == 1 && slice.recipients.empty() && !slice.to_holder;
  slice.is_put = has_one_reader && !slice.addends.empty() && slices.may_be_put(slice);
  slices.add(std::move(slice));
  for (Slice& each : relayed) slices.add(std::move(each));
}

}  // namespace kolo
