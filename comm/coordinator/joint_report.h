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
#include "comm/coordinator/last_act.h"
#include "comm/coordinator/rank_set.h"
#include "comm/coordinator/topic.h"

namespace kolo {

/// One entry of a rank's report.
struct PendingTopic {
  Topic topic;
  bool blocking = false;  ///< A thread of the rank waits for it.
  std::string text = {};  ///< Description, one line per tensor; see `tensor_of`.
  /// Equal on all ranks for the uses of a name, which are matched in order, or for what is at one
  /// place of such an order: two ranks that have different topics of one `sequence` pending
  /// disagree. 0: the topic is in no such order.
  std::uint64_t sequence = 0;
  /// The rank has submitted the topic and it has ended there: it is not pending.
  bool past = false;

  friend bool operator==(const PendingTopic&, const PendingTopic&) = default;
};

/// What a rank did last.
struct RankAct {
  int rank = 0;
  LastAct act = {};

  friend bool operator==(const RankAct&, const RankAct&) = default;
};

/// A rank that does not answer: nothing is known of it, nor of those that report through it.
struct MuteRank {
  int rank = 0;
  std::chrono::milliseconds silence{0};
  std::string stuck_in = {};  ///< The verb of the call that has not returned; empty: not known.

  friend bool operator==(const MuteRank&, const MuteRank&) = default;
};

/// Ranks that report the same, so that one entry stands for all of them.
struct AlikeRanks {
  static constexpr std::size_t kMostActs = 16;

  RankSet ranks;
  std::vector<PendingTopic> pending{};  ///< By topic.
  bool all_wait = false;        ///< Every thread that uses the runtime waits for a pending topic.
  std::vector<RankAct> acts{};  ///< What the first few of them did last, by rank.

  friend bool operator==(const AlikeRanks&, const AlikeRanks&) = default;
};

/// What the ranks of a subtree report, of bounded size however many they are: ranks that report the
/// same share one entry. Of too many kinds some are left out, so nothing is known of their ranks;
/// of too many topics those from `unknown_from` on. What is left out, or mute, is never taken for
/// missing.
struct JointReport {
  static constexpr std::size_t kMostKinds = 32;
  static constexpr std::size_t kMostTopics = 4096;
  static constexpr std::size_t kMostMute = 16;

  std::vector<AlikeRanks> alike{};      ///< By first rank.
  std::optional<Topic> unknown_from{};  ///< Of this topic and later ones nothing is known.
  std::vector<MuteRank> mute{};         ///< The first few of them, by rank.

  /// Ranks of which something is known.
  std::size_t ranks() const;

  friend bool operator==(const JointReport&, const JointReport&) = default;
};

/// The report of one rank.
JointReport report_of(RankAct act, std::vector<PendingTopic> pending, bool all_wait);

/// The reports of ranks that are in one of them only, in one. Pure.
JointReport combine(std::vector<JointReport> reports);

/// Bytes of a report: its topics and their texts once, then one byte per topic and kind.
void write(ByteWriter& writer, const JointReport& report);

/// The inverse. Empty if the bytes are no report.
std::optional<JointReport> read_joint_report(ByteReader& reader);

/// One rank's part in the inquiries of the root, which go down the tree and whose reports come up:
/// a rank answers when all of its children have, or are given up, with one report for its whole
/// subtree. So no rank handles more than one question and one bounded answer per child. Pure state
/// machine.
class Inquiry {
 public:
  explicit Inquiry(const CombiningTree& tree) : tree_(tree) {}

  /// An inquiry has come, and `own` is what this rank reports. An older one is given up.
  void begin(std::uint64_t number, JointReport own);

  /// Takes the report of a child; one that is not owed, or answers another inquiry, is ignored.
  void report(int child, std::uint64_t number, JointReport report);

  /// The report of a child that does not answer is waited for no longer.
  void give_up(MuteRank child);

  /// The report of this rank's subtree, once, when it is complete.
  std::optional<JointReport> take_complete();

  std::uint64_t number() const { return number_; }
  /// Children whose report the open inquiry still lacks.
  const std::set<int>& silent_children() const { return silent_; }
  bool is_open() const { return !reports_.empty(); }

 private:
  const CombiningTree& tree_;
  std::uint64_t number_ = 0;
  std::vector<JointReport> reports_;
  std::set<int> silent_;
};

}  // namespace kolo
