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

/// Decides at the root whether ranks that make no progress can ever proceed. Asks all ranks for
/// their pending proposals and judges the combined report. Pure state machine.
///
///   disagreement   Ranks have submitted one name with different signatures, or different
///                  operations at the same position of an order that all ranks keep. The result is
///                  an error.
///   deadlock       On every rank of a set, all threads that use the runtime wait, and every
///                  proposal that they wait for is missing on another rank of the set. The result
///                  is an error that quotes the proposals for which each rank waits.
///   stall          Threads wait for a proposal that some ranks have not submitted but still can.
///                  If ranks wait for each other, all ranks log a warning. If the missing ranks are
///                  busy, the root logs a warning after `kPeriodsBeforeNote` times `confirm_after`.
///                  The root logs `stall_table` after `warn_after`, or if a rank does not answer,
///                  and again whenever the wait has doubled. After `stall_after`, the result is an
///                  error (kStall) if ranks are known to lack the proposal.
///
/// The reports of one inquiry describe different instants. A disagreement or deadlock therefore
/// counts only if a second inquiry, begun `confirm_after` later, shows the same state. Conflicts
/// that the negotiator has found need no second inquiry. Mute ranks, and ranks and proposals
/// omitted from the bounded report, never count as lacking a proposal or as stuck.
class StallInspector {
 public:
  struct Limits {
    Duration confirm_after{};
    Duration warn_after = Duration::max();   ///< Delay before the table. The largest value means
                                             ///< never.
    Duration stall_after = Duration::max();  ///< Delay before the error. The largest value means
                                             ///< never.
  };

  StallInspector(int world_size, const Limits& limits);

  /// Proposals to reject with `error`.
  struct Finding {
    std::vector<ProposalKey> keys;
    Error error;
  };
  struct Warning {
    std::string text;
    bool is_for_all_ranks = false;
  };

  /// Records a complaint that `key` makes no progress.
  void stalled(const ProposalKey& key);
  /// Records that ranks have proposed `key` with different fingerprints.
  void conflict(const ProposalKey& key);
  /// Forgets all proposals with this hash.
  void forget(std::uint64_t hash);
  /// Requests the second inquiry for a suspicion when it is due.
  void tick(TimePoint now);

  bool has_query() const {
    return !asking_ && (is_due_ || !stalled_.empty() || !conflicts_.empty());
  }
  /// Begins an inquiry if `has_query()`. Returns its kQuery frame for all ranks; queries are
  /// numbered from 1.
  std::optional<Frame> next_query(TimePoint now);

  /// Takes the combined report of the open inquiry and closes the inquiry. Returns proposals to
  /// reject, if any.
  std::optional<Finding> report(AggregatedReport report, TimePoint now);

  std::optional<Warning> take_warning() { return std::exchange(warning_, std::nullopt); }
  static constexpr int kPeriodsBeforeNote = 10;

  /// Whether an inquiry is open or planned.
  bool is_busy() const { return asking_ || confirm_at_.has_value(); }

 private:
  /// Proposals that are pending on some ranks and that other ranks may never submit.
  struct Suspicion {
    std::map<const AlikeRanks*, std::set<ProposalKey>> pending = {};  // entries of `report_`
    bool is_disagreement = false;
  };
  /// Part of a suspicion, kept for comparison with a later report.
  struct Suspect {
    RankSet ranks;
    std::set<ProposalKey> keys;
  };
  /// The state of a proposal that ranks wait for and that other ranks lack or mute ranks may lack.
  struct Stall {
    TimePoint since;
    std::optional<TimePoint> crossed_since =
        {};                    // since then, waiting and missing ranks wait for each other
    bool is_noted = false;     // whether logged as waiting for busy ranks
    bool is_warned = false;    // whether logged as waiting for each other
    bool is_in_table = false;  // whether it appears in a logged table
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
  std::optional<ProposalKey> conflict_;  // conflict that the open inquiry is about
  std::uint64_t query_ = 0;
  bool asking_ = false;
  TimePoint asked_at_{};  // start from the last inquiry
  bool is_due_ = false;
  bool is_complaint_ = false;      // whether a complaint caused the open inquiry
  std::set<ProposalKey> asked_;    // bucket iterations that the open inquiry asks about
  std::set<ProposalKey> blocked_;  // proposals with waiting threads in the last inquiry
  AggregatedReport report_;        // from the last inquiry
  std::vector<Suspect> suspects_;  // from the last inquiry
  bool suspects_disagree_ = false;
  TimePoint suspected_since_{};
  std::optional<TimePoint> confirm_at_;
  std::map<ProposalKey, Stall> stalls_;
  TimePoint next_table_{};          // time of the next table for stalls that a table has shown
  std::set<ProposalKey> rejected_;  // rejected proposals; some reports may still list them
  std::optional<Warning> warning_;
};

}  // namespace kolo
