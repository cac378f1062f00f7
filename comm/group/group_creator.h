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

/// A group that this rank proposes to create. All members must pass equal ranks and settings.
struct GroupProposal {
  std::string name;        ///< Name for people; distinguishes groups of the same ranks.
  std::vector<int> ranks;  ///< Ranks of the job, by rank in the group. The lowest one is the
                           ///< collecting rank.
  std::string settings;    ///< Settings, which must be equal on all members.
  GroupPlace place;        ///< Resources of this rank for the group.
  /// Inbox number, at the collecting rank, of the group from which the members create this group.
  ControlDemux::Number parent = ControlDemux::kCreators;
  /// Reason why this rank has no resources, if so; then the group is not created.
  std::optional<Error> obstacle = {};

  /// Returns name and ranks: "'pp' [2, 5]".
  std::string text() const;
};

/// One rank's view of the creation of groups: proposals and bytes in, bytes and outcomes out. Pure
/// state machine: no thread, no clock, no transport.
///
/// Each member sends its proposal to the member of lowest rank (the collecting rank), which returns
/// all places to every member once it has all proposals. Groups with the same ranks and name are
/// created in the order in which each member proposes them. Other groups may be created in any
/// order and concurrently.
///
/// If a member has an obstacle, or differs in the order of ranks or in settings, all members get an
/// error once the collecting rank has all proposals. All members also get an error if the missing
/// members have joined or closed in the parent group. The collecting rank counts time from the
/// first `tick` with a proposal, whether or not it has proposed the group itself. It logs a warning
/// about late members after `warn_after`. After `fail_after` it refuses the group with an error
/// that names the late members, which get the error when they propose the group.
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
  /// The result of proposal `id`: the places of all members, by rank in the group, or an error.
  struct Outcome {
    std::uint64_t id = 0;
    std::variant<std::vector<GroupPlace>, Error> result;
  };
  /// Ranks of the job that do not create groups now.
  struct Absent {
    std::set<int> joined = {};  ///< Ranks that have joined or closed.
    std::set<int> closed = {};
  };
  /// A function that returns the absent ranks of the group with this inbox on this rank.
  using AbsentIn = std::function<Absent(ControlDemux::Number group)>;

  GroupCreator(int rank, Patience patience) : rank_(rank), patience_(patience) {}

  /// Proposes a group. Returns the id of its outcome. Before: the ranks are distinct ranks of the
  /// job, and this rank is one of them.
  std::uint64_t propose(GroupProposal proposal);

  /// Takes bytes that `peer` sent. Drops malformed bytes, which may come from outside the job.
  void receive(int peer, std::span<const std::byte> bytes);

  /// Refuses groups whose members are absent or late; logs warnings about late members.
  void tick(TimePoint now, const AbsentIn& absent_in);

  /// Whether a proposal of this rank, or one that it collects, is undecided. If so, call `tick`.
  bool is_waiting() const { return !proposed_.empty() || coming_ > 0; }

  std::vector<Outgoing> take_outgoing() { return std::exchange(outgoing_, {}); }
  std::vector<Outcome> take_outcomes() { return std::exchange(outcomes_, {}); }

 private:
  /// One proposal, as the collecting rank receives it.
  struct Coming {
    std::uint64_t id = 0;  // proposal id at the sender
    GroupProposal proposal;
  };
  /// Name and ranks; ranks are in ascending order.
  using Key = std::pair<std::string, std::vector<int>>;
  /// State at the collecting rank of the groups with one key. Map keys are ranks of the job.
  struct Gathering {
    std::optional<TimePoint> since;           // when `look` first saw the proposals that wait now
    bool warned = false;                      // about late members of these proposals
    std::map<int, std::deque<Coming>> came;   // proposals received; at least one member has none
    std::map<int, std::deque<Error>> missed;  // errors for late members, in order
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
  std::map<std::uint64_t, GroupProposal> proposed_;  // undecided proposals of this rank
  std::map<Key, Gathering> gatherings_;
  std::size_t coming_ = 0;  // number of undecided proposals received here
  ForeignFrames foreign_;
  std::vector<Outgoing> outgoing_;
  std::vector<Outcome> outcomes_;
};

}  // namespace kolo
