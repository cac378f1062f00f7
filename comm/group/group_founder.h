#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "comm/base/clock.h"
#include "comm/base/error.h"
#include "comm/group/group_transport.h"
#include "comm/transport/control_frames.h"

namespace kolo {

/// A group that this rank wants to found, as all its members must propose it.
struct GroupProposal {
  std::string name;        ///< For people, and to tell groups of the same ranks apart.
  std::vector<int> ranks;  ///< Of the job, by rank in the group; the least one collects.
  std::string settings;    ///< Must be equal on all members.
  GroupPlace place;        ///< Of this rank.
  /// The group whose members found it, by its inbox at the rank that collects.
  ControlSwitch::Number parent = ControlSwitch::kFounders;
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
/// founded in the order in which each member proposes them; all others may be founded in any order
/// and at the same time.
///
/// If a member has an obstacle, or differs in the order of ranks or in settings, all get that error
/// once all have come. So they do if a member has joined in the group that they found it from, or
/// closed it, and so proposes nothing; that the one that collects has done so itself makes no
/// difference. If a
/// member does not come, the one that collects warns after `warn_after`, and after `fail_after`
/// refuses the group to those that came and, when they come, to the others, with an error that
/// names those that did not.
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
  /// Ranks of the job that found nothing.
  struct Absent {
    std::set<int> joined = {};  ///< With those that have closed.
    std::set<int> closed = {};
  };
  /// Those of a group, which has this inbox here.
  using AbsentIn = std::function<Absent(ControlSwitch::Number group)>;

  GroupFounder(int rank, Patience patience) : rank_(rank), patience_(patience) {}

  /// Proposes a group; returns the id of its outcome. Before: the ranks are different ranks of the
  /// job and this rank is one of them.
  std::uint64_t propose(GroupProposal proposal, TimePoint now);

  /// Takes the bytes that `peer` sent. Malformed ones are dropped: they may be a stranger's.
  void receive(int peer, std::span<const std::byte> bytes);

  /// Refuses groups to which a member does not come. Warns of members that are late.
  void tick(TimePoint now, const AbsentIn& absent_in);

  /// Something is proposed and not decided, here or by ranks for which this one collects: `tick` is
  /// to be called.
  bool is_waiting() const { return !proposed_.empty() || coming_ > 0; }

  std::vector<Outgoing> take_outgoing() { return std::exchange(outgoing_, {}); }
  std::vector<Outcome> take_outcomes() { return std::exchange(outcomes_, {}); }

 private:
  struct Proposed {
    GroupProposal proposal;
    TimePoint since = {};
    bool warned = false;
  };
  /// One proposal, as it comes to the rank that collects.
  struct Coming {
    std::uint64_t id = 0;  // of who comes
    GroupProposal proposal;
  };
  /// Name and ranks, in ascending order.
  using Key = std::pair<std::string, std::vector<int>>;
  /// Where this rank collects, by rank of the job.
  struct Gathering {
    std::map<int, std::deque<Coming>> came;   // none is empty; some rank has none
    std::map<int, std::deque<Error>> missed;  // what was refused before these came
  };

  void come(int peer, Coming coming);
  void conclude(Gathering& gathering);
  void look(const Key& key, Gathering& gathering, TimePoint now, const AbsentIn& absent_in);
  void refuse(Gathering& gathering, Error error, const std::vector<int>& late = {});
  void settle(Gathering& gathering, const std::variant<std::vector<GroupPlace>, Error>& result);
  void answer(int peer, std::uint64_t id,
              const std::variant<std::vector<GroupPlace>, Error>& result);
  void decide(std::uint64_t id, std::variant<std::vector<GroupPlace>, Error> result);

  const int rank_;
  const Patience patience_;
  std::uint64_t next_id_ = 0;
  std::map<std::uint64_t, Proposed> proposed_;  // by this rank, undecided
  std::map<Key, Gathering> gatherings_;
  std::size_t coming_ = 0;  // in all of them
  ForeignFrames foreign_;
  std::vector<Outgoing> outgoing_;
  std::vector<Outcome> outcomes_;
};

}  // namespace kolo
