#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "comm/coordinator/frame.h"

namespace kolo {

/// The root's detective: when a topic makes no progress, asks every rank what it has pending and
/// decides whether waiting longer can help. Pure state machine.
///
/// Ranks are in a circle when each of them has a thread that waits for a topic which another of
/// them has not submitted: none can go on, so their topics are rejected with one error that quotes
/// what each rank waits for. A rank that has not submitted a topic and blocks on nothing is
/// computing; it is merely slow, however long it takes. Since reports of different ranks are not of
/// one instant, a circle counts only when two inquiries in a row show it.
///
/// Reports also name what is past at a rank: it has submitted that, too.
///
/// A conflict (all submitted, fingerprints differ) needs one inquiry: its reports say what differs.
class StallInspector {
 public:
  explicit StallInspector(int world_size);

  /// Topics to reject, and why.
  struct Finding {
    std::vector<Topic> topics;
    Error error;
  };

  /// A rank complains about `topic`; cheap to call again.
  void stalled(const Topic& topic);
  void conflict(const Topic& topic);

  bool has_query() const { return !asking_ && !questions_.empty(); }
  /// The inquiry to begin now, if none is under way and something is to be asked: a kQuery frame
  /// for every rank.
  std::optional<Frame> next_query();

  /// Takes the kReport of `rank`; answers to former inquiries are ignored. Returns a finding when
  /// the last report of an inquiry proves one.
  std::optional<Finding> report(int rank, const Frame& frame);

  /// A sentence for people about a topic that some ranks wait for and others, busy or forgetful,
  /// have not submitted for `kInquiriesBeforeNote` inquiries; once per topic.
  std::optional<std::string> take_note() { return std::exchange(note_, std::nullopt); }
  static constexpr int kInquiriesBeforeNote = 5;

  /// Whether an inquiry is under way.
  bool asking() const { return asking_; }

 private:
  struct Question {
    Topic topic;
    bool is_conflict;
  };

  std::optional<Finding> conclude();
  std::optional<Finding> explain_conflict() const;
  std::optional<Finding> find_circle();
  void note_missing_ranks();
  bool has_pending(int rank, const Topic& topic) const;

  int world_size_;
  std::deque<Question> questions_;
  Question current_{};
  std::uint64_t query_ = 0;
  bool asking_ = false;
  std::map<int, std::vector<PendingTopic>> reports_;
  std::set<std::pair<int, Topic>> suspected_;  // the circle of the former inquiry
  std::map<Topic, int> inquiries_;             // that found no circle, by topic still pending
  std::optional<std::string> note_;
};

}  // namespace kolo
