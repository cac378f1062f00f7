#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "comm/group/group_founder.h"
#include "fusion/arena.h"
#include "fusion/ready_queue.h"
#include "runtime/buckets/ticket_state.h"
#include "runtime/engine/engine.h"
#include "runtime/wait/driver.h"

namespace kolo {

/// Bounds of the groups of one rank.
inline constexpr BucketId kGroupBuckets = 128;  ///< Of each group.
inline constexpr std::size_t kMostGroups =      ///< At a time: as message tags have room for.
    ((std::size_t{1} << kTagBucketBits) - kMaxBuckets) / kGroupBuckets;

/// The part of one rank in a group: an engine of its own, with the connections of the job.
class GroupEngine {
 public:
  /// What engines of one rank share; all of it outlives them.
  struct Shared {
    Transport& transport;
    const ProcessGrid& grid;
    EngineClocks clocks;
    const Options& options;
    const Calibration& calibration;
    ReduceTeam* team = nullptr;
    const std::atomic<int>* user_threads = nullptr;
    Pulse* pulse = nullptr;
    Device* device = nullptr;
    GroupConnector* connector = nullptr;  ///< Of collectives of the device; null: there are none.
  };

  /// `inbox` holds what has arrived for the group already. `text` names it in errors.
  GroupEngine(const Shared& shared, GroupMembers members, const TransportLimits& limits,
              std::unique_ptr<ControlInbox> inbox, std::string text);

  Engine& engine() { return engine_; }
  /// As the engine's; costs next to nothing while the group has nothing to do.
  bool poll() noexcept { return (!engine_.idle() || !inbox_->empty()) && engine_.poll(); }
  const ProcessGrid& grid() const { return grid_; }
  int rank() const { return transport_.rank(); }
  const std::vector<int>& ranks() const { return members_.ranks; }
  /// Of the group's frames, at a member by its rank in the job.
  ControlSwitch::Number inbox_at(int rank_of_job) const;
  const std::string& text() const { return text_; }

 private:
  const GroupMembers members_;
  const std::string text_;
  const ProcessGrid grid_;
  const std::unique_ptr<ControlInbox> inbox_;
  GroupTransport transport_;
  Engine engine_;
};

/// The wish of a user's thread for a group, and its fulfilment.
struct GroupFounding {
  std::string name = {};
  std::vector<int> ranks = {};  ///< Of the job, by rank in the group; this rank is one of them.
  std::shared_ptr<const GroupEngine> parent = {};  ///< Whose members found it; null: the job.
  std::size_t arena_bytes = 0;                     ///< The same on all members.
  TicketState ticket = {};
  std::shared_ptr<GroupEngine> group = {};  ///< Once the ticket is done without an error.
};

/// All engines of one rank: that of the job, and one for each group that the rank is a member of.
/// They move independently; what stalls or fails in a group holds up no other. If the job ends, so
/// do its groups.
///
/// Threads: `submit` any; everything else the driver's (see `Driver`).
class Engines final : public Pollable {
 public:
  /// Groups lie in `arena`. It and `job` outlive the engines.
  Engines(Engine& job, ControlSwitch& control_switch, const GroupEngine::Shared& shared,
          LocalArena& arena);
  ~Engines() override;
  Engines(const Engines&) = delete;
  Engines& operator=(const Engines&) = delete;

  /// Founds a group with its other members. Its ticket tells when it is founded, or why it is not.
  void submit(std::shared_ptr<GroupFounding> founding);

  // As those of `Engine`, for all of them.

  bool poll() noexcept override {
    const bool moved = job_.poll();
    return has_groups() || job_.ended() ? poll_groups() || moved : moved;
  }
  void abort(Error error) override { job_.abort(std::move(error)); }
  bool has_submissions() const override;
  bool idle() const override;
  bool device_busy() const override;
  void fail_with_exception(EngineVerb verb) noexcept override {
    job_.fail_with_exception(verb);
    if (job_.failure()) end_all(*job_.failure());
  }
  Pulse* pulse() const override { return shared_.pulse; }
  /// Whether the job's has.
  bool ended() const override { return job_.ended(); }

 private:
  /// What a group has of this rank.
  struct Holding {
    GroupPlace place;
    std::shared_ptr<GroupEngine> group;
    bool closes_with_job = false;
  };
  struct Proposed {
    std::shared_ptr<GroupFounding> founding;
    std::optional<GroupPlace> place;  // none with an obstacle
    std::unique_ptr<ControlInbox> inbox;
  };

  bool has_groups() const {
    return !groups_.empty() || !submitted_.empty() || founder_.is_waiting() || !ended_.empty() ||
           !founders_inbox_.empty();
  }
  bool poll_groups() noexcept;
  void pause();
  bool found();
  void report_loss(GroupEngine& ended);
  GroupFounder::Absent absent_in(ControlSwitch::Number group) const;
  void propose(const std::shared_ptr<GroupFounding>& founding);
  void decide(GroupFounder::Outcome outcome);
  void give_back(const GroupPlace& place);
  bool close_groups();
  void end_all(const Error& error) noexcept;
  static TransportLimits limits_of(const GroupFounding& founding);
  GroupLayout layout_of(const GroupFounding& founding) const;
  GroupPlace take_place(const GroupFounding& founding);

  Engine& job_;
  ControlSwitch& switch_;
  const GroupEngine::Shared shared_;
  ControlInbox founders_inbox_;
  GroupFounder founder_;
  LocalArena& arena_;
  std::set<std::uint32_t> free_buckets_;  // first ones of ranges that groups have given back
  std::uint32_t next_buckets_ = 0;        // ranges that were never taken follow
  ReadyQueue<std::shared_ptr<GroupFounding>> submitted_;
  std::vector<std::shared_ptr<GroupFounding>> drained_;
  std::map<std::uint64_t, Proposed> proposed_;  // by the founder's id
  std::vector<Holding> groups_;
  std::vector<Holding> ended_;  // for which messages may still arrive, in memory of theirs
  std::vector<std::byte> framed_;
};

}  // namespace kolo
