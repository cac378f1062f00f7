#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "comm/base/clock.h"
#include "comm/base/error.h"
#include "comm/group/group_transport.h"

namespace kolo {

/// A group that this rank wants to found, as all its members must propose it.
struct GroupProposal {
  std::string name;        ///< For people, and to tell groups of the same ranks apart.
  std::vector<int> ranks;  ///< Of the job, by rank in the group; the least one collects.
  std::string settings;    ///< Must be equal on all members.
  GroupPlace place;        ///< Of this rank.
  /// Why this rank can have no place: then there is no group.
  std::optional<Error> obstacle = {};

  /// "'pp' [2, 5]".
  std::string text() const;
};

/// Founds groups as one rank sees it: proposals and bytes in, bytes and places out. Pure state
/// machine: no thread, no clock, no transport.
///
/// Each member sends its place to the member of least rank, which sends all places to each of them
/// once it has heard of everybody. Only members take part. Groups with the same ranks and name are
/// told apart by how many there were before, so members found them in the same order; all others
/// may be founded in any order and at the same time.
///
/// If a member has an obstacle, or differs in the order of ranks or in settings, all get that error
/// once all have come. If one does not come, the one that collects warns after `warn_after`, and
/// after `fail_after` refuses the group to those that came, with an error that names those that did
/// not.
class GroupFounder {
 public:
  struct Patience {
    Duration warn_after = std::chrono::seconds(1);
    Duration fail_after = Duration::max();
  };
  struct Outgoing {
    int peer = -1;
    std::vector<std::byte> bytes;
  };
  /// The places of all members, by rank in the group, or why there is no group.
  struct Outcome {
    std::uint64_t id = 0;
    std::variant<std::vector<GroupPlace>, Error> result;
  };

  GroupFounder(int rank, Patience patience) : rank_(rank), patience_(patience) {}

  /// Proposes a group; returns the id of its outcome. Before: the ranks are different ranks of the
  /// job and this rank is one of them.
  std::uint64_t propose(GroupProposal proposal, TimePoint now);

  /// Takes the bytes that `peer` sent. Errors: KoloError(kInternal) if they are malformed.
  void receive(int peer, std::span<const std::byte> bytes);

  /// Warns of members that are late, and refuses.
  void tick(TimePoint now);

  /// Something is proposed here and not decided.
  bool is_waiting() const { return !proposed_.empty(); }

  std::vector<Outgoing> take_outgoing() { return std::exchange(outgoing_, {}); }
  std::vector<Outcome> take_outcomes() { return std::exchange(outcomes_, {}); }

 private:
  /// A hash of ranks, in ascending order, and name, and how many such groups there were before.
  using Key = std::pair<std::uint64_t, std::uint64_t>;
  struct Member {
    GroupPlace place;
    std::uint64_t order = 0;  // a hash of the ranks as this member lists them
    std::string settings;
    std::optional<Error> obstacle;
  };
  struct Proposed {
    std::uint64_t id = 0;
    GroupProposal proposal;
    TimePoint since = {};
    bool warned = false;
  };

  void come(int peer, const Key& key, Member member);
  void conclude(const Key& key);
  void answer(const Key& key, const Proposed& proposed,
              const std::variant<std::vector<GroupPlace>, Error>& result);
  void refuse(const Key& key, Error error);
  void decide(const Key& key, std::variant<std::vector<GroupPlace>, Error> result);

  const int rank_;
  const Patience patience_;
  std::uint64_t next_id_ = 0;
  std::map<std::uint64_t, std::uint64_t> uses_;  // by hash
  std::map<Key, Proposed> proposed_;             // by this rank, undecided
  std::map<Key, std::map<int, Member>> came_;    // where this rank collects, by rank of the job
  std::vector<Outgoing> outgoing_;
  std::vector<Outcome> outcomes_;
};

}  // namespace kolo
