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

/// A group that this rank wants to create. All its members must propose it alike.
struct GroupProposal {
  std::string name;        ///< Shown to people; distinguishes groups of the same ranks.
  std::vector<int> ranks;  ///< Ranks of the job, by rank in the group; the lowest one collects the
                           ///< proposals.
  std::string settings;    ///< Must be equal on all members.
  GroupPlace place;        ///< Place of this rank.
  /// The group from which the members create this one, given as its inbox at the collecting rank.
  ControlDemux::Number parent = ControlDemux::kCreators;
  /// Why this rank cannot have a place; then the group is not created.
  std::optional<Error> obstacle = {};

  /// "'pp' [2, 5]".
  std::string text() const;
};

/// One rank's view of creation groups: proposals and bytes in, bytes and places out. Pure state
/// machine: no thread, no clock, no transport.
///
/// Each member sends its place to the member of lowest rank, which sends all places to every member
/// once it has all of them. Only members take part. Groups with the same ranks and name are created
/// in the order in which each member proposes them; all other groups may be created in any order
/// and at the same time.
///
/// If a member has an obstacle, or differs in the order of ranks or in settings, all members get
/// that error once all proposals have come. The same holds if a member has joined or closed in the
/// parent group and therefore proposes nothing, even if that member is the collecting one. If a
/// member is late, the collecting one warns after `warn_after`. After `fail_after` it refuses the
/// group to all members whose proposals have come, and to the others when theirs come, with an
/// error that names the missing members.
class GroupCreator {
 public:
  struct Patience {
    Duration warn_after = std::chrono::seconds(1);
    Duration fail_after = Duration::max();
  };
  struct Outgoing {
    int peer = -1;
    std::vector<std::byte> bytes;
  };
  /// The places of all members, by rank in the group, or the reason why there is no group.
  struct Outcome {
    std::uint64_t id = 0;
    std::variant<std::vector<GroupPlace>, Error> result;
  };
  /// Ranks of the job that do not create groups any more.
  struct Absent {
    std::set<int> joined = {};  ///< Including ranks that have closed.
    std::set<int> closed = {};
  };
  /// Returns the absent ranks of the group with this inbox on this rank.
  using AbsentIn = std::function<Absent(ControlDemux::Number group)>;

  GroupCreator(int rank, Patience patience) : rank_(rank), patience_(patience) {}

  /// Proposes a group; returns the id of its outcome. Before: the ranks are different ranks of the
  /// job and this rank is one of them.
  std::uint64_t propose(GroupProposal proposal, TimePoint now);

  /// Takes bytes that `peer` sent. Drops malformed bytes, since they may come from a stranger.
  void receive(int peer, std::span<const std::byte> bytes);

  /// Refuses groups whose members stay away for too long. Warns of late members.
  void tick(TimePoint now, const AbsentIn& absent_in);

  /// Whether a proposal of this rank, or one that it collects, is undecided, so that `tick` must be
  /// called.
  bool is_waiting() const { return !proposed_.empty() || coming_ > 0; }

  std::vector<Outgoing> take_outgoing() { return std::exchange(outgoing_, {}); }
  std::vector<Outcome> take_outcomes() { return std::exchange(outcomes_, {}); }

 private:
  struct Proposed {
    GroupProposal proposal;
    TimePoint since = {};
    bool warned = false;
  };
  /// One proposal, as the collecting rank receives it.
  struct Coming {
    std::uint64_t id = 0;  // proposal id at the sender
    GroupProposal proposal;
  };
  /// Name and ranks, in ascending order.
  using Key = std::pair<std::string, std::vector<int>>;
  /// State at the collecting rank; keys are ranks of the job.
  struct Gathering {
    std::map<int, std::deque<Coming>> came;   // no queue is empty; some rank has none
    std::map<int, std::deque<Error>> missed;  // refusals sent before the proposals of these ranks
                                              // came
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
  std::size_t coming_ = 0;  // total number of proposals that have come
  ForeignFrames foreign_;
  std::vector<Outgoing> outgoing_;
  std::vector<Outcome> outcomes_;
};

}  // namespace kolo
