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

/// Decides at the root whether ranks that make no progress can ever proceed. It asks all ranks for
/// their pending proposals and judges the combined report. Pure state machine.
///
///   disagreement   Ranks have submitted one name with different signatures, or have different
///                  operations at one place of an order that they keep: an error at once.
///   deadlock       In each rank of a set every thread that uses the runtime waits, and everything
///                  it waits for is missing at another rank of the set. Nothing can come any more:
///                  an error that quotes what each of these ranks waits for.
///   stall          A thread waits for a proposal that some ranks have not submitted, but can. If
///                  those ranks wait for something else, all ranks log a warning; if they are
///                  merely busy, the root logs one after `kPeriodsBeforeNote` times
///                  `confirm_after`. After `warn_after`, or when a rank that may lack it does not
///                  answer, and each time the wait has doubled, the root logs `stall_table`. After
///                  `stall_after` it is an error (kStall) if ranks are known to lack it.
///
/// The reports of one inquiry do not describe one instant. Except for a conflict that the
/// negotiator has found, a suspicion therefore counts only if a second inquiry, begun
/// `confirm_after` later, shows the same: then there was an instant at which all of it held. Ranks
/// and proposals omitted from the bounded report, and mute ranks, never count as lacking a proposal
/// or as stuck.
class StallInspector {
 public:
  struct Limits {
    Duration confirm_after{};
    Duration warn_after = Duration::max();   ///< Delay before the table; the largest value: never.
    Duration stall_after = Duration::max();  ///< Delay before the error; the largest value: never.
  };

  StallInspector(int world_size, const Limits& limits);

  /// Proposals to reject, and the reason.
  struct Finding {
    std::vector<ProposalKey> keys;
    Error error;
  };
  struct Warning {
    std::string text;
    bool is_for_all_ranks = false;
  };

  /// A rank reports that `key` makes no progress; cheap to call again.
  void stalled(const ProposalKey& key);
  /// All ranks have proposed `key`, with different fingerprints.
  void conflict(const ProposalKey& key);
  /// Forgets proposals with this hash.
  void forget(std::uint64_t hash);
  /// Advances time: a suspicion may be due for its second inquiry.
  void tick(TimePoint now);

  bool has_query() const {
    return !asking_ && (is_due_ || !stalled_.empty() || !conflicts_.empty());
  }
  /// The inquiry to begin now, if none is open and one is needed: a kQuery frame for every rank,
  /// numbered from 1.
  std::optional<Frame> next_query(TimePoint now);

  /// Takes the combined answer to the open inquiry. Returns a finding if the answer proves one.
  std::optional<Finding> report(AggregatedReport report, TimePoint now);

  std::optional<Warning> take_warning() { return std::exchange(warning_, std::nullopt); }
  static constexpr int kPeriodsBeforeNote = 10;

  /// Whether an inquiry is open, or another one will follow.
  bool is_busy() const { return asking_ || confirm_at_.has_value(); }

 private:
  /// Proposals that some ranks have pending although other ranks will never submit them.
  struct Suspicion {
    std::map<const AlikeRanks*, std::set<ProposalKey>> pending = {};  // from the report of the last
                                                                      // inquiry
    bool is_disagreement = false;
  };
  /// A suspicion in a form that can be compared with a later report.
  struct Suspect {
    RankSet ranks;
    std::set<ProposalKey> keys;
  };
  /// A proposal that ranks wait for and that is missing at other ranks, or possibly at mute ones.
  struct Stall {
    TimePoint since;
    std::optional<TimePoint> crossed_since =
        {};                    // the ranks that lack it wait for another proposal
    bool is_noted = false;     // logged as waiting for busy ranks
    bool is_warned = false;    // logged as crossed
    bool is_in_table = false;  // appears in a logged table
  };

  std::optional<Finding> conclude(TimePoint now);
  Finding explain_conflict(const ProposalKey& key) const;
  Suspicion find_disagreement() const;
  Suspicion find_deadlock() const;
  bool is_confirmed(const Suspicion& suspicion, TimePoint now);
  Finding explain(const Suspicion& suspicion) const;
  std::optional<Finding> follow_stalls(TimePoint now);
  bool is_crossed(const ProposalKey& key) const;
  bool is_table_due(TimePoint now) const;
  std::string make_table(TimePoint now);
  std::string describe_stalls(const std::vector<ProposalKey>& keys) const;
  std::string text_of(const ProposalKey& key) const;
  std::string ranks_left_out() const;
  std::string ranks_unheard() const;
  bool has_submitted(const AlikeRanks& ranks, const ProposalKey& key) const;
  static const PendingKey* find_pending(const AlikeRanks& ranks, const ProposalKey& key);
  static bool waits(const AlikeRanks& ranks, const ProposalKey& key);
  RankSet ranks_waiting(const ProposalKey& key) const;
  RankSet ranks_without(const ProposalKey& key) const;

  std::size_t world_size_;
  Limits limits_;
  std::set<ProposalKey> stalled_;
  std::deque<ProposalKey> conflicts_;
  std::optional<ProposalKey> conflict_;  // for the open inquiry
  std::uint64_t query_ = 0;
  bool asking_ = false;
  TimePoint asked_at_{};  // time of the last inquiry: reported proposals were pending then
  bool is_due_ = false;
  bool is_complaint_ = false;      // whether a complaint caused the open inquiry
  std::set<ProposalKey> asked_;    // proposals of buckets that the open inquiry asks about
  std::set<ProposalKey> blocked_;  // proposals with waiting threads in the last inquiry
  AggregatedReport report_;        // of the last inquiry
  std::vector<Suspect> suspects_;  // of the last inquiry
  bool suspects_disagree_ = false;
  TimePoint suspected_since_{};
  std::optional<TimePoint> confirm_at_;
  std::map<ProposalKey, Stall> stalls_;
  TimePoint next_table_{};          // next table for stalls that a table has shown
  std::set<ProposalKey> rejected_;  // their kReject frames may still be in flight
  std::optional<Warning> warning_;
};

}  // namespace kolo
