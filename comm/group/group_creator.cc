#include "comm/group/group_creator.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/base/byte_codec.h"
#include "comm/base/check.h"
#include "comm/base/contains.h"
#include "comm/base/log.h"

namespace kolo {
namespace {

enum class CreationMessage : std::uint8_t {
  kCome,     ///< Member to collecting rank: its proposal.
  kCreated,  ///< Collecting rank to members: all places.
  kRefused,  ///< Collecting rank to members: an error.
};

constexpr std::size_t kPlaceBytes = 20;

void write(ByteWriter& writer, const GroupPlace& place) {
  writer.number(place.inbox);
  writer.number(place.first_bucket);
  writer.number(place.arena_offset);
}

GroupPlace read_place(ByteReader& reader) {
  GroupPlace place;
  place.inbox = reader.number<std::uint64_t>();
  place.first_bucket = reader.number<std::uint32_t>();
  place.arena_offset = reader.number<std::uint64_t>();
  return place;
}

void write(ByteWriter& writer, const GroupProposal& proposal) {
  writer.text(proposal.name);
  writer.number(narrow<std::uint32_t>(proposal.ranks.size()));
  for (const int rank : proposal.ranks) writer.rank(rank);
  writer.text(proposal.settings);
  write(writer, proposal.place);
  writer.number(proposal.parent);
  writer.number(static_cast<std::uint8_t>(proposal.obstacle ? 1 : 0));
  if (proposal.obstacle) write_error(writer, *proposal.obstacle);
}

/// Decodes a proposal. Returns an empty value if its error is malformed.
std::optional<GroupProposal> read_proposal(ByteReader& reader) {
  GroupProposal proposal;
  proposal.name = reader.text();
  proposal.ranks.resize(reader.list(sizeof(std::uint32_t)));
  for (int& rank : proposal.ranks) rank = reader.rank();
  proposal.settings = reader.text();
  proposal.place = read_place(reader);
  proposal.parent = reader.number<ControlDemux::Number>();
  const bool has_obstacle = reader.number<std::uint8_t>() != 0;
  if (has_obstacle) proposal.obstacle = read_error(reader);
  if (has_obstacle != proposal.obstacle.has_value()) return std::nullopt;
  return proposal;
}

std::vector<int> ascending(std::vector<int> ranks) {
  std::ranges::sort(ranks);
  return ranks;
}

/// Returns "rank 1 of the job has" or "ranks 1, 2 of the job have".
std::string those_have(const std::vector<int>& ranks) {
  const bool is_one = ranks.size() == 1;
  return fmt::format("rank{} {} of the job {}", is_one ? "" : "s", fmt::join(ranks, ", "),
                     is_one ? "has" : "have");
}

}  // namespace

std::string GroupProposal::text() const {
  return name.empty() ? fmt::format("{}", ranks) : fmt::format("'{}' {}", name, ranks);
}

std::uint64_t GroupCreator::propose(GroupProposal proposal) {
  const std::uint64_t id = next_id_++;
  proposed_[id] = proposal;
  const int first = *std::ranges::min_element(proposal.ranks);
  if (first == rank_) {
    come(rank_, {.id = id, .proposal = std::move(proposal)});
    return id;
  }
  Outgoing& outgoing = outgoing_.emplace_back(Outgoing{.peer = first, .bytes = {}});
  ByteWriter writer(outgoing.bytes);
  writer.number(static_cast<std::uint8_t>(CreationMessage::kCome));
  writer.number(id);
  write(writer, proposal);
  return id;
}

void GroupCreator::receive(int peer, std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  const auto kind = static_cast<CreationMessage>(reader.number<std::uint8_t>());
  const auto id = reader.number<std::uint64_t>();
  const auto turn_away = [&] { foreign_.drop(peer, "a malformed message about a group"); };
  switch (kind) {
    case CreationMessage::kCome: {
      auto proposal = read_proposal(reader);
      if (!proposal || !reader.ok() || !reader.at_end()) return turn_away();
      const std::vector<int> ranks = ascending(proposal->ranks);
      const bool is_for_me = !ranks.empty() && ranks.front() == rank_ && contains(ranks, peer) &&
                             std::ranges::adjacent_find(ranks) == ranks.end();
      if (!is_for_me) return turn_away();
      return come(peer, {.id = id, .proposal = std::move(*proposal)});
    }
    case CreationMessage::kCreated: {
      std::vector<GroupPlace> places(reader.list(kPlaceBytes));
      for (GroupPlace& place : places) place = read_place(reader);
      const auto found = proposed_.find(id);
      const bool fits = found == proposed_.end() || places.size() == found->second.ranks.size();
      if (!reader.ok() || !reader.at_end() || !fits) return turn_away();
      return decide(id, std::move(places));
    }
    case CreationMessage::kRefused: {
      auto error = read_error(reader);
      if (!error || !reader.ok() || !reader.at_end()) return turn_away();
      return decide(id, std::move(*error));
    }
  }
  turn_away();
}

// --- The collecting rank ------------------------------------------------------------------------

void GroupCreator::come(int peer, Coming coming) {
  const Key key{coming.proposal.name, ascending(coming.proposal.ranks)};
  Gathering& gathering = gatherings_[key];
  if (const auto missed = gathering.missed.find(peer); missed != gathering.missed.end()) {
    answer(peer, coming.id, std::move(missed->second.front()));
    missed->second.pop_front();
    if (missed->second.empty()) gathering.missed.erase(missed);
  } else {
    gathering.came[peer].push_back(std::move(coming));
    ++coming_;
    if (gathering.came.size() == key.second.size()) conclude(gathering);
  }
  if (gathering.came.empty() && gathering.missed.empty()) gatherings_.erase(key);
}

/// Checks the proposals and answers the members. Before: every member has a proposal.
void GroupCreator::conclude(Gathering& gathering) {
  const GroupProposal& own = gathering.came.at(rank_).front().proposal;
  std::vector<GroupPlace> places;
  std::optional<Error> obstacle;
  std::optional<Error> mismatch;
  for (const int rank : own.ranks) {
    const GroupProposal& member = gathering.came.at(rank).front().proposal;
    if (member.obstacle && !obstacle) obstacle = member.obstacle;
    if (member.ranks != own.ranks && !mismatch) {
      mismatch = {.code = ErrorCode::kMismatch,
                  .verb = "create",
                  .what = fmt::format(
                      "the job's rank {} names the members in another order than rank {}, by whose "
                      "list they are {}",
                      rank, rank_, fmt::join(own.ranks, ", "))};
    }
    if (member.settings != own.settings && !mismatch) {
      mismatch = {.code = ErrorCode::kMismatch,
                  .verb = "create",
                  .what = fmt::format("the job's rank {} has {} and rank {} has {}", rank_,
                                      own.settings, rank, member.settings)};
    }
    places.push_back(member.place);
  }
  if (obstacle || mismatch) return refuse(gathering, std::move(obstacle ? *obstacle : *mismatch));
  settle(gathering, std::move(places));
}

/// Refuses a group. Members in `late` get the error when they propose the group.
void GroupCreator::refuse(Gathering& gathering, Error error, const std::vector<int>& late) {
  const auto own = gathering.came.find(rank_);
  const auto& first = own != gathering.came.end() ? own->second : gathering.came.begin()->second;
  error.group = first.front().proposal.text();
  log::report(error);
  for (const int rank : late) gathering.missed[rank].push_back(error);
  settle(gathering, std::move(error));
}

/// Answers and removes the first proposal of each rank that has one.
void GroupCreator::settle(Gathering& gathering,
                          const std::variant<std::vector<GroupPlace>, Error>& result) {
  for (auto it = gathering.came.begin(); it != gathering.came.end();) {
    auto& [rank, comings] = *it;
    answer(rank, comings.front().id, result);
    comings.pop_front();
    --coming_;
    it = comings.empty() ? gathering.came.erase(it) : std::next(it);
  }
  gathering.since.reset();
  gathering.warned = false;
}

void GroupCreator::answer(int peer, std::uint64_t id,
                          const std::variant<std::vector<GroupPlace>, Error>& result) {
  if (peer == rank_) return decide(id, result);
  Outgoing& outgoing = outgoing_.emplace_back(Outgoing{.peer = peer, .bytes = {}});
  ByteWriter writer(outgoing.bytes);
  const auto* places = std::get_if<std::vector<GroupPlace>>(&result);
  writer.number(static_cast<std::uint8_t>(places != nullptr ? CreationMessage::kCreated
                                                            : CreationMessage::kRefused));
  writer.number(id);
  if (places != nullptr) {
    writer.number(narrow<std::uint32_t>(places->size()));
    for (const GroupPlace& place : *places) write(writer, place);
  } else {
    write_error(writer, std::get<Error>(result));
  }
}

/// Records the outcome of a proposal of this rank, unless it has one already.
void GroupCreator::decide(std::uint64_t id, std::variant<std::vector<GroupPlace>, Error> result) {
  if (proposed_.erase(id) > 0) outcomes_.push_back({.id = id, .result = std::move(result)});
}

void GroupCreator::tick(TimePoint now, const AbsentIn& absent_in) {
  for (auto& [key, gathering] : gatherings_) {
    if (!gathering.came.empty()) look(key, gathering, now, absent_in);
  }
  std::erase_if(gatherings_, [](const auto& each) {
    return each.second.came.empty() && each.second.missed.empty();
  });
}

void GroupCreator::look(const Key& key, Gathering& gathering, TimePoint now,
                        const AbsentIn& absent_in) {
  std::set<ControlDemux::Number> parents;
  for (const auto& [rank, comings] : gathering.came) {
    parents.insert(comings.front().proposal.parent);
  }
  Absent gone;
  for (const ControlDemux::Number parent : parents) {
    Absent more = absent_in(parent);
    gone.joined.merge(more.joined);
    gone.closed.merge(more.closed);
  }
  if (!gathering.since) gathering.since = now;
  const bool is_late = now - *gathering.since >= patience_.warn_after;
  if (gone.joined.empty() && !is_late) return;
  std::vector<int> absent, late;
  for (const int rank : key.second) {
    if (gathering.came.contains(rank)) continue;
    (gone.joined.contains(rank) ? absent : late).push_back(rank);
  }
  if (late.empty()) {
    std::vector<int> closed;
    std::ranges::set_intersection(absent, gone.closed, std::back_inserter(closed));
    const bool for_good = !closed.empty();
    const std::vector<int>& meant = for_good ? closed : absent;
    return refuse(gathering,
                  {.code = ErrorCode::kMismatch,
                   .verb = for_good ? "close" : "join",
                   .what = fmt::format("{} {} and create{} no group{}", those_have(meant),
                                       for_good ? "closed" : "joined", meant.size() == 1 ? "s" : "",
                                       for_good ? " any more" : " until all have")});
  }
  if (!is_late) return;
  const std::string text =
      those_have(late) + " not created it; all members must name the same ranks";
  if (now - *gathering.since >= patience_.fail_after) {
    refuse(gathering, {.code = ErrorCode::kStall, .verb = "create", .what = text}, late);
  } else if (!std::exchange(gathering.warned, true)) {
    const GroupProposal& first = gathering.came.begin()->second.front().proposal;
    log::warn(fmt::format("group {}: waiting: {}", first.text(), text));
  }
}

}  // namespace kolo
