#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "comm/base/byte_codec.h"
#include "comm/coordinator/combining_tree.h"
#include "comm/coordinator/last_activity.h"
#include "comm/coordinator/proposal_key.h"
#include "comm/coordinator/rank_set.h"

namespace kolo {

/// A proposal in the report of a rank.
struct PendingKey {
  ProposalKey key;
  bool blocking = false;  ///< Whether a thread of the rank waits for the decision.
  std::string text = {};  ///< Description, one line per tensor; see `tensor_of`.
  /// Identifies an order that all ranks keep: the successive uses of a name, or one position in a
  /// sequence of operations. Two ranks disagree if they have different proposals of one `sequence`
  /// pending. 0 means that the proposal belongs to no such order.
  std::uint64_t sequence = 0;
  /// Whether the proposal has already ended on the rank, so that it is not pending.
  bool past = false;

  friend bool operator==(const PendingKey&, const PendingKey&) = default;
};

/// The last action of a rank.
struct RankAct {
  int rank = 0;
  ActivitySnapshot act = {};

  friend bool operator==(const RankAct&, const RankAct&) = default;
};

/// A rank that does not answer. The states of all ranks in its subtree are unknown.
struct MuteRank {
  int rank = 0;
  std::chrono::milliseconds silence{0};
  std::string stuck_in = {};  ///< Name of the call that has not returned, or empty if unknown.

  friend bool operator==(const MuteRank&, const MuteRank&) = default;
};

/// A set of ranks with equal reports.
struct AlikeRanks {
  static constexpr std::size_t kMostActs = 16;

  RankSet ranks;
  std::vector<PendingKey> pending{};  ///< In ascending order of keys.
  bool all_wait = false;  ///< Whether all threads that use the runtime wait for pending proposals.
  std::vector<RankAct> acts{};  ///< Last actions of the first few ranks, by rank.

  friend bool operator==(const AlikeRanks&, const AlikeRanks&) = default;
};

/// The report of a subtree. Its size is bounded for any number of ranks, because ranks with equal
/// reports share one entry. If there are too many entries, some are omitted, and the states of
/// their ranks are unknown. If there are too many proposals, the proposals from `unknown_from` on
/// are omitted. Omitted proposals and mute ranks never count as missing.
struct AggregatedReport {
  static constexpr std::size_t kMostKinds = 32;
  static constexpr std::size_t kMostProposals = 4096;
  static constexpr std::size_t kMostMute = 16;

  std::vector<AlikeRanks> alike{};            ///< In ascending order of the first rank.
  std::optional<ProposalKey> unknown_from{};  ///< First omitted proposal, if any.
  std::vector<MuteRank> mute{};               ///< The lowest mute ranks, ascending.

  /// Number of ranks whose state is known.
  std::size_t ranks() const;

  friend bool operator==(const AggregatedReport&, const AggregatedReport&) = default;
};

/// Makes the report of the rank `act.rank`.
AggregatedReport report_of(RankAct act, std::vector<PendingKey> pending, bool all_wait);

/// Merges reports of disjoint sets of ranks. Pure.
AggregatedReport combine(std::vector<AggregatedReport> reports);

/// Encodes a report: all proposals with their texts, then one byte per proposal for each entry.
void write(ByteWriter& writer, const AggregatedReport& report);

/// Decodes a report. Returns an empty value if the bytes are malformed.
std::optional<AggregatedReport> read_aggregated_report(ByteReader& reader);

/// One rank's state in an inquiry. The root's query is forwarded down the tree. Each rank returns
/// one report for its subtree, once all its children have answered or been given up. Pure state
/// machine.
class Inquiry {
 public:
  explicit Inquiry(const CombiningTree& tree) : tree_(tree) {}

  /// Starts an inquiry with `own` as this rank's report, and drops an older inquiry.
  void begin(std::uint64_t number, AggregatedReport own);

  /// Takes the report of a child. Ignores unexpected reports and reports of another inquiry.
  void report(int child, std::uint64_t number, AggregatedReport report);

  /// Stops waiting for the report of a child, which is then listed as mute.
  void give_up(MuteRank child);

  /// Returns the report of this rank's subtree when it is complete. Later calls return nothing.
  std::optional<AggregatedReport> take_complete();

  std::uint64_t number() const { return number_; }
  /// Children that have not reported to the open inquiry.
  const std::set<int>& silent_children() const { return silent_; }
  bool is_open() const { return !reports_.empty(); }

 private:
  const CombiningTree& tree_;
  std::uint64_t number_ = 0;
  std::vector<AggregatedReport> reports_;
  std::set<int> silent_;
};

}  // namespace kolo
