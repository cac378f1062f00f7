#include "comm/group/group_founder.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include "comm/base/byte_codec.h"
#include "comm/base/check.h"
#include "comm/base/log.h"

namespace kolo {
namespace {

enum class FoundingMessage : std::uint8_t {
  kCome,     ///< Member to the first one: place and settings.
  kFounded,  ///< First one to members: all places.
  kRefused,  ///< First one to members: the error.
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

std::uint64_t hash_of(const std::string& name, const std::vector<int>& ranks) {
  std::vector<std::byte> bytes;
  ByteWriter writer(bytes);
  writer.text(name);
  for (int rank : ranks) writer.rank(rank);
  return XXH3_64bits(bytes.data(), bytes.size());
}

int collector(const GroupProposal& proposal) { return *std::ranges::min_element(proposal.ranks); }

}  // namespace

std::string GroupProposal::text() const {
  return name.empty() ? fmt::format("{}", ranks) : fmt::format("'{}' {}", name, ranks);
}

std::uint64_t GroupFounder::propose(GroupProposal proposal, TimePoint now) {
  std::vector<int> ascending = proposal.ranks;
  std::ranges::sort(ascending);
  const std::uint64_t hash = hash_of(proposal.name, ascending);
  const Key key{hash, uses_[hash]++};
  const int first = ascending.front();
  Member self{.place = proposal.place,
              .order = hash_of(proposal.name, proposal.ranks),
              .settings = proposal.settings,
              .obstacle = std::move(proposal.obstacle)};
  const std::uint64_t id = next_id_++;
  proposed_[key] = {.id = id, .proposal = std::move(proposal), .since = now};
  if (first == rank_) {
    come(rank_, key, std::move(self));
    return id;
  }
  Outgoing& outgoing = outgoing_.emplace_back(Outgoing{.peer = first, .bytes = {}});
  ByteWriter writer(outgoing.bytes);
  writer.number(static_cast<std::uint8_t>(FoundingMessage::kCome));
  writer.number(key.first);
  writer.number(key.second);
  write(writer, self.place);
  writer.number(self.order);
  writer.text(self.settings);
  writer.number(static_cast<std::uint8_t>(self.obstacle ? 1 : 0));
  if (self.obstacle) write_error(writer, *self.obstacle);
  return id;
}

void GroupFounder::receive(int peer, std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  const auto kind = static_cast<FoundingMessage>(reader.number<std::uint8_t>());
  Key key;
  key.first = reader.number<std::uint64_t>();
  key.second = reader.number<std::uint64_t>();
  const auto require = [&](bool good) {
    if (good) return;
    throw KoloError({.code = ErrorCode::kInternal,
                     .rank = rank_,
                     .peer = peer,
                     .what = "received a malformed message about a group"});
  };
  switch (kind) {
    case FoundingMessage::kCome: {
      Member member;
      member.place = read_place(reader);
      member.order = reader.number<std::uint64_t>();
      member.settings = reader.text();
      const bool has_obstacle = reader.number<std::uint8_t>() != 0;
      if (has_obstacle) member.obstacle = read_error(reader);
      require(has_obstacle == member.obstacle.has_value());
      require(reader.ok() && reader.at_end());
      return come(peer, key, std::move(member));
    }
    case FoundingMessage::kFounded: {
      std::vector<GroupPlace> places(reader.list(kPlaceBytes));
      for (GroupPlace& place : places) place = read_place(reader);
      const auto found = proposed_.find(key);
      require(reader.ok() && reader.at_end());
      // A late answer to a proposal that has ended otherwise.
      if (found == proposed_.end()) return;
      require(places.size() == found->second.proposal.ranks.size());
      return decide(key, std::move(places));
    }
    case FoundingMessage::kRefused: {
      auto error = read_error(reader);
      require(error && reader.ok() && reader.at_end());
      return decide(key, std::move(*error));
    }
  }
  require(false);
}

void GroupFounder::come(int peer, const Key& key, Member member) {
  came_[key][peer] = std::move(member);
  if (proposed_.contains(key)) conclude(key);
}

/// Answers all members if all have come. Before: this rank collects, and has proposed the group.
void GroupFounder::conclude(const Key& key) {
  const Proposed& proposed = proposed_.at(key);
  const std::map<int, Member>& came = came_.at(key);
  std::vector<GroupPlace> places;
  const Member& own = came.at(rank_);
  std::optional<Error> obstacle;
  std::optional<Error> mismatch;
  for (int rank : proposed.proposal.ranks) {
    const auto found = came.find(rank);
    if (found == came.end()) return;
    const Member& member = found->second;
    if (member.obstacle && !obstacle) obstacle = member.obstacle;
    if (member.order != own.order && !mismatch) {
      mismatch = {.code = ErrorCode::kMismatch,
                  .verb = "found",
                  .what = fmt::format(
                      "the job's rank {} names the members in another order than rank {}, by whose "
                      "list they are {}",
                      rank, rank_, fmt::join(proposed.proposal.ranks, ", "))};
    }
    if (member.settings != own.settings && !mismatch) {
      mismatch = {.code = ErrorCode::kMismatch,
                  .verb = "found",
                  .what = fmt::format("the job's rank {} has {} and rank {} has {}", rank_,
                                      own.settings, rank, member.settings)};
    }
    places.push_back(member.place);
  }
  if (obstacle || mismatch) return refuse(key, std::move(obstacle ? *obstacle : *mismatch));
  answer(key, proposed, places);
  came_.erase(key);
  decide(key, std::move(places));
}

void GroupFounder::answer(const Key& key, const Proposed& proposed,
                          const std::variant<std::vector<GroupPlace>, Error>& result) {
  for (int rank : proposed.proposal.ranks) {
    if (rank == rank_ || !came_.at(key).contains(rank)) continue;
    Outgoing& outgoing = outgoing_.emplace_back(Outgoing{.peer = rank, .bytes = {}});
    ByteWriter writer(outgoing.bytes);
    const auto* places = std::get_if<std::vector<GroupPlace>>(&result);
    writer.number(static_cast<std::uint8_t>(places != nullptr ? FoundingMessage::kFounded
                                                              : FoundingMessage::kRefused));
    writer.number(key.first);
    writer.number(key.second);
    if (places != nullptr) {
      writer.number(narrow<std::uint32_t>(places->size()));
      for (const GroupPlace& place : *places) write(writer, place);
    } else {
      write_error(writer, std::get<Error>(result));
    }
  }
}

void GroupFounder::refuse(const Key& key, Error error) {
  const Proposed& proposed = proposed_.at(key);
  error.group = proposed.proposal.text();
  log::report(error);
  answer(key, proposed, error);
  came_.erase(key);
  decide(key, std::move(error));
}

void GroupFounder::decide(const Key& key, std::variant<std::vector<GroupPlace>, Error> result) {
  const auto found = proposed_.find(key);
  if (found == proposed_.end()) return;
  outcomes_.push_back({.id = found->second.id, .result = std::move(result)});
  proposed_.erase(found);
}

void GroupFounder::tick(TimePoint now) {
  std::vector<std::pair<Key, Error>> late;
  for (auto& [key, proposed] : proposed_) {
    const GroupProposal& proposal = proposed.proposal;
    const Duration waited = now - proposed.since;
    if (waited < patience_.warn_after || collector(proposal) != rank_) continue;
    std::vector<int> missing;
    std::ranges::copy_if(proposal.ranks, std::back_inserter(missing),
                         [&, &key = key](int rank) { return !came_.at(key).contains(rank); });
    const std::string text =
        fmt::format("rank{} {} of the job {} not founded it; all members must name the same ranks",
                    missing.size() == 1 ? "" : "s", fmt::join(missing, ", "),
                    missing.size() == 1 ? "has" : "have");
    if (waited >= patience_.fail_after) {
      late.emplace_back(key, Error{.code = ErrorCode::kStall, .verb = "found", .what = text});
    } else if (!std::exchange(proposed.warned, true)) {
      log::warn(fmt::format("group {}: waiting: {}", proposal.text(), text));
    }
  }
  for (auto& [key, error] : late) refuse(key, std::move(error));
}

}  // namespace kolo
