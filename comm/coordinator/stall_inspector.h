#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "comm/base/clock.h"
#include "comm/coordinator/frame.h"

namespace kolo {

/// Decides at the root whether ranks that make no progress ever can. It asks every rank what it has
/// pending and judges the reports. Pure state machine.
///
///   disagreement   Ranks have submitted one name with different signatures: an error at once.
///   deadlock       In each rank of a set every thread that uses the runtime waits, and everything
///                  it waits for is missing at another rank of the set. Nothing can come any more:
///                  an error that quotes what each of these ranks waits for.
///   stall          A thread waits for a topic that some ranks have not submitted, but can. If
///                  those ranks wait for something else, all ranks log a warning; if they are
///                  merely busy, the root logs one after `kPeriodsBeforeNote` times
///                  `confirm_after`. After `warn_after`, and each time the wait has doubled, the
///                  root logs `stall_table`. After `stall_after` it is an error (kStall).
///
/// Reports of one inquiry are not of one instant. Except for a conflict that the negotiator has
/// found, a suspicion therefore counts only if a second inquiry, begun `confirm_after` later, shows
/// the same: then there was an instant at which all of it held.
class StallInspector {
 public:
  struct Limits {
    Duration confirm_after{};
    Duration warn_after = Duration::max();   ///< Until the table; the largest value: never.
    Duration stall_after = Duration::max();  ///< The largest value: never.
  };

  StallInspector(int world_size, const Limits& limits);

  /// Topics to reject, and why.
  struct Finding {
    std::vector<Topic> topics;
    Error error;
  };
  struct Warning {
    std::string text;
    bool is_for_all_ranks = false;
  };

  /// A rank complains that `topic` makes no progress; cheap to call again.
  void stalled(const Topic& topic);
  /// All ranks have proposed `topic`, with different fingerprints.
  void conflict(const Topic& topic);
  /// Time passes: a suspicion may be due for its second inquiry.
  void tick(TimePoint now);

  bool has_query() const {
    return !asking_ && (is_due_ || !stalled_.empty() || !conflicts_.empty());
  }
  /// The inquiry to begin now, if none is open and something is to be asked: a kQuery frame
  /// for every rank.
  std::optional<Frame> next_query();

  /// Takes the kReport of `rank`; answers to former inquiries are ignored. Returns a finding when
  /// the last report of an inquiry proves one.
  std::optional<Finding> report(int rank, const Frame& frame, TimePoint now);

  std::optional<Warning> take_warning() { return std::exchange(warning_, std::nullopt); }
  static constexpr int kPeriodsBeforeNote = 10;

  /// Whether an inquiry is open, or another one will follow.
  bool is_busy() const { return asking_ || confirm_at_.has_value(); }
  /// Ranks whose report the open inquiry still lacks.
  std::vector<int> silent_ranks() const;

 private:
  struct Report {
    std::vector<PendingTopic> pending;  // by topic
    bool all_wait = false;
    LastAct last;
  };
  /// What some ranks have pending although others will never submit it.
  struct Suspicion {
    std::set<std::pair<int, Topic>> pending = {};
    bool is_disagreement = false;
  };
  /// A topic that is waited for and missing at some ranks.
  struct Stall {
    TimePoint since;
    std::optional<TimePoint> crossed_since = {};  // the ranks that lack it wait for another one
    bool is_noted = false;                        // as waiting for busy ranks
    bool is_warned = false;                       // as crossed
    bool is_in_table = false;                     // that has been logged
  };

  std::optional<Finding> conclude(TimePoint now);
  Finding explain_conflict(const Topic& topic) const;
  Suspicion find_disagreement() const;
  Suspicion find_deadlock() const;
  bool is_confirmed(const Suspicion& suspicion, TimePoint now);
  Finding explain(const Suspicion& suspicion) const;
  std::optional<Finding> follow_stalls(TimePoint now);
  bool is_crossed(const Topic& topic) const;
  bool is_table_due(TimePoint now) const;
  std::string make_table(TimePoint now);
  std::vector<int> ranks_waiting(const Topic& topic) const;
  std::string describe_stalls(const std::vector<Topic>& topics) const;
  bool has_submitted(int rank, const Topic& topic) const;
  const PendingTopic* find_pending(int rank, const Topic& topic) const;
  std::vector<int> ranks_without(const Topic& topic) const;

  int world_size_;
  Limits limits_;
  std::set<Topic> stalled_;
  std::deque<Topic> conflicts_;
  std::optional<Topic> conflict_;  // of the open inquiry
  std::uint64_t query_ = 0;
  bool asking_ = false;
  bool is_due_ = false;
  bool is_complaint_ = false;  // that led to the open inquiry
  std::set<Topic> asked_;      // the buckets' topics that the open inquiry asks about
  std::set<Topic> blocked_;    // those that were waited for in the last inquiry
  std::map<int, Report> reports_;
  Suspicion suspicion_;  // of the last inquiry
  TimePoint suspected_since_{};
  std::optional<TimePoint> confirm_at_;
  std::map<Topic, Stall> stalls_;
  TimePoint next_table_{};    // of stalls that a table has shown
  std::set<Topic> rejected_;  // frames that say so may still be in flight
  std::optional<Warning> warning_;
};

}  // namespace kolo
