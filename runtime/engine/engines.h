#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "comm/group/group_creator.h"
#include "fusion/arena.h"
#include "fusion/ready_queue.h"
#include "runtime/buckets/ticket_state.h"
#include "runtime/engine/engine.h"
#include "runtime/wait/progress_engine.h"

namespace kolo {

/// Limits for the groups of one rank.
inline constexpr BucketId kGroupBuckets = 128;  ///< Buckets of each group.
inline constexpr std::size_t kMostGroups =      ///< At a time; limited by message tags.
    ((std::size_t{1} << kTagBucketBits) - kMaxBuckets) / kGroupBuckets;

/// The engine of a group on one rank, which uses the connections of the job.
class GroupEngine {
 public:
  /// The objects that all engines of one rank share, and that must outlive them.
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
    CommunicatorConnector* connector = nullptr;  ///< For device collectives; may be null.
  };

  /// `inbox` holds frames that were received for the group earlier. `text` names the group in
  /// errors; `options` are the group's own.
  GroupEngine(const Shared& shared, const Options& options, GroupMembers members,
              const TransportLimits& limits, std::unique_ptr<ControlInbox> inbox, std::string text);

  Engine& engine() { return engine_; }
  /// Polls the engine; costs almost nothing while the group is idle.
  bool poll() noexcept { return (!engine_.idle() || !inbox_->empty()) && engine_.poll(); }
  const ProcessGrid& grid() const { return grid_; }
  int rank() const { return transport_.rank(); }
  const std::vector<int>& ranks() const { return members_.ranks; }
  /// Returns the number of the group's inbox at the member with this rank in the job.
  ControlDemux::Number inbox_at(int rank_of_job) const;
  const std::string& text() const { return text_; }

 private:
  const GroupMembers members_;
  const std::string text_;
  const ProcessGrid grid_;
  const std::unique_ptr<ControlInbox> inbox_;
  GroupTransport transport_;
  Engine engine_;
};

/// A request of a user's thread to create a group, and its result.
struct GroupCreation {
  std::string name = {};
  /// Ranks in the job of the members, by rank in the group. They include this rank.
  std::vector<int> ranks = {};
  std::shared_ptr<const GroupEngine> parent = {};  ///< Parent group; null: the job.
  std::size_t arena_bytes = 0;
  std::chrono::milliseconds operation_timeout{0};  ///< 0: that of the job.
  TicketState ticket = {};
  std::shared_ptr<GroupEngine> group = {};  ///< Set once the ticket is done without an error.

  /// Returns the settings as text, which must be equal on all members.
  std::string settings() const;
};

/// All engines of one rank: the job's, and one for each group that the rank is a member of. They
/// advance independently; a stall or failure in a group affects no other engine. The end of the job
/// also ends its groups.
///
/// Threads: `submit` any; everything else the driving thread's (see `ProgressEngine`).
class Engines final : public Pollable {
 public:
  /// Arenas of groups are allocated in `arena`. All arguments must outlive this object.
  Engines(Engine& job, ControlDemux& control_demux, const GroupEngine::Shared& shared,
          LocalArena& arena);
  ~Engines() override;
  Engines(const Engines&) = delete;
  Engines& operator=(const Engines&) = delete;

  /// Creates a group together with its other members. The ticket is done when the group exists or
  /// its creation has failed.
  void submit(std::shared_ptr<GroupCreation> creation);

  // These work like the functions of `Engine`, for all engines.

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
  /// Returns whether the job's engine has ended.
  bool ended() const override { return job_.ended(); }

 private:
  /// This rank's resources for a group.
  struct Holding {
    GroupPlace place;
    std::shared_ptr<GroupEngine> group;
    bool closes_with_job = false;
    bool has_told_loss = false;
  };
  struct Proposed {
    std::shared_ptr<GroupCreation> creation;
    std::optional<GroupPlace> place;  // empty if this rank could not allocate it
    std::unique_ptr<ControlInbox> inbox;
  };

  bool has_groups() const {
    return !groups_.empty() || !submitted_.empty() || creator_.is_waiting() || !ended_.empty() ||
           !creators_inbox_.empty();
  }
  bool poll_groups() noexcept;
  void pause();
  bool create();
  void report_loss(GroupEngine& ended);
  GroupCreator::Absent absent_in(ControlDemux::Number group) const;
  void propose(const std::shared_ptr<GroupCreation>& creation);
  void decide(GroupCreator::Outcome outcome);
  void give_back(const GroupPlace& place, bool has_strays);
  bool close_groups();
  bool abort_groups();
  void end_all(const Error& error) noexcept;
  static TransportLimits limits_of(const GroupCreation& creation);
  GroupLayout layout_of(const GroupCreation& creation) const;
  GroupPlace take_place(const GroupCreation& creation);

  Engine& job_;
  ControlDemux& demux_;
  const GroupEngine::Shared shared_;
  ControlInbox creators_inbox_;
  GroupCreator creator_;
  LocalArena& arena_;
  std::set<std::uint32_t> free_buckets_;  // ranges that groups have given back
  std::uint32_t next_buckets_ = 0;        // first range that was never taken
  ReadyQueue<std::shared_ptr<GroupCreation>> submitted_;
  std::vector<std::shared_ptr<GroupCreation>> drained_;
  std::map<std::uint64_t, Proposed> proposed_;  // by the id of the creating rank
  std::vector<Holding> groups_;
  std::vector<Holding> ended_;  // failed, or with messages in flight; peers may use their places
  std::vector<std::byte> framed_;
};

}  // namespace kolo
