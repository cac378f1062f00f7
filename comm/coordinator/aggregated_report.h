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

/// One entry of a rank's report.
struct PendingKey {
  ProposalKey key;
  bool blocking = false;  ///< Whether a thread of the rank waits for it.
  std::string text = {};  ///< Description, one line per tensor; see `tensor_of`.
  /// Equal on all ranks for the uses of one name, which are matched in order, or for proposals at
  /// one place in such an order. Two ranks with different pending proposals of one `sequence`
  /// disagree. 0: the proposal belongs to no such order.
  std::uint64_t sequence = 0;
  /// The rank submitted the proposal and it has ended there: it is not pending.
  bool past = false;

  friend bool operator==(const PendingKey&, const PendingKey&) = default;
};

/// The last action of a rank.
struct RankAct {
  int rank = 0;
  ActivitySnapshot act = {};

  friend bool operator==(const RankAct&, const RankAct&) = default;
};

/// A rank that does not answer. Its state is unknown, and so is that of the ranks that report
/// through it.
struct MuteRank {
  int rank = 0;
  std::chrono::milliseconds silence{0};
  std::string stuck_in = {};  ///< Name of the call that has not returned; empty: not known.

  friend bool operator==(const MuteRank&, const MuteRank&) = default;
};

/// Ranks with equal reports, which share one entry.
struct AlikeRanks {
  static constexpr std::size_t kMostActs = 16;

  RankSet ranks;
  std::vector<PendingKey> pending{};  ///< By proposal.
  bool all_wait = false;  ///< Every thread that uses the runtime waits for a pending proposal.
  std::vector<RankAct> acts{};  ///< Last actions of the first few ranks, by rank.

  friend bool operator==(const AlikeRanks&, const AlikeRanks&) = default;
};

/// The report of a subtree, of bounded size for any number of ranks: ranks with equal reports share
/// one entry. If there are too many different entries, some are omitted and their ranks count as
/// unknown; if there are too many proposals, those from `unknown_from` on are omitted. Omitted
/// proposals and mute ranks never count as missing.
struct AggregatedReport {
  static constexpr std::size_t kMostKinds = 32;
  static constexpr std::size_t kMostProposals = 4096;
  static constexpr std::size_t kMostMute = 16;

  std::vector<AlikeRanks> alike{};            ///< By first rank.
  std::optional<ProposalKey> unknown_from{};  ///< Nothing is known of this and later proposals.
  std::vector<MuteRank> mute{};               ///< The first few mute ranks, by rank.

  /// Number of ranks whose state is known.
  std::size_t ranks() const;

  friend bool operator==(const AggregatedReport&, const AggregatedReport&) = default;
};

/// The report of one rank.
AggregatedReport report_of(RankAct act, std::vector<PendingKey> pending, bool all_wait);

/// Merges reports of disjoint sets of ranks. Pure.
AggregatedReport combine(std::vector<AggregatedReport> reports);

/// Encodes a report: its proposals and their texts once, then one byte per proposal and entry.
void write(ByteWriter& writer, const AggregatedReport& report);

/// Decodes a report. Empty if the bytes are not a report.
std::optional<AggregatedReport> read_aggregated_report(ByteReader& reader);

/// One rank's part in the root's inquiries, which go down the tree and whose reports come up. A
/// rank answers with one report for its whole subtree once all of its children have answered or
/// been given up. So no rank handles more than one question and one bounded answer per child. Pure
/// state machine.
class Inquiry {
 public:
  explicit Inquiry(const CombiningTree& tree) : tree_(tree) {}

  /// Starts an inquiry with `own` as this rank's report. An older inquiry is given up.
  void begin(std::uint64_t number, AggregatedReport own);

  /// Takes the report of a child; ignores one that is not expected or answers another inquiry.
  void report(int child, std::uint64_t number, AggregatedReport report);

  /// Stops waiting for the report of a child that does not answer.
  void give_up(MuteRank child);

  /// The report of this rank's subtree once it is complete; returned only once.
  std::optional<AggregatedReport> take_complete();

  std::uint64_t number() const { return number_; }
  /// Children whose report the open inquiry still lacks.
  const std::set<int>& silent_children() const { return silent_; }
  bool is_open() const { return !reports_.empty(); }

 private:
  const CombiningTree& tree_;
  std::uint64_t number_ = 0;
  std::vector<AggregatedReport> reports_;
  std::set<int> silent_;
};

}  // namespace kolo
