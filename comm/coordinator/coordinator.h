#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/base/clock.h"
#include "comm/coordinator/invitations.h"
#include "comm/coordinator/joint_report.h"
#include "comm/coordinator/last_act.h"
#include "comm/coordinator/negotiator.h"
#include "comm/coordinator/peer_watch.h"
#include "comm/coordinator/stall_inspector.h"
#include "comm/coordinator/topic.h"
#include "comm/schedule/bucket_layout.h"
#include "comm/transport/control_frames.h"
#include "comm/transport/transport.h"
#include "topology/process_grid.h"

namespace kolo {

struct CoordinatorOptions {
  /// A topic that is pending for this long is investigated.
  Duration mismatch_after = std::chrono::seconds(1);
  /// A peer that answers nothing for this long is lost.
  Duration peer_timeout = std::chrono::seconds(10);
  /// After a topic has been waited for in vain for this long the root logs who lacks it, and what
  /// those ranks did last; the largest value: never.
  Duration warn_after = Duration::max();
  /// A topic that ranks wait for in vain for this long is an error; the largest value: never.
  Duration stall_after = Duration::max();
  /// Numbers of buckets are below.
  BucketId buckets = kMaxBuckets;
  /// The group of ranks, for errors; empty: the whole job.
  std::string group = {};
};

/// Between complaints about what makes no progress: the first comes so long after it has become
/// pending, and the error of a stall at most two and a half of them after the limit. Pure.
Duration complaint_interval(const CoordinatorOptions& options);

/// A submission as errors show it, and as the inspector of stalls judges it.
struct Subject {
  std::string_view text;  ///< Description, one line per tensor; must live until the decision.
  const Waited& waited;   ///< Must live until the decision.
  /// Hash of its name; 0: none.
  std::uint64_t name = 0;
  /// Hash of the name whose uses all ranks make in the same order, or of the place of this one in
  /// such an order; 0: none.
  std::uint64_t sequence = 0;
  /// It may end here before other ranks have begun theirs.
  bool may_end_early = false;
};

/// Takes the frames of messages between two ranks, which need no agreement.
class MessageFrames {
 public:
  /// Returns false if the frame belongs to no message of this rank.
  virtual bool receive(int peer, const Frame& frame) = 0;

 protected:
  ~MessageFrames() = default;
};

/// A bucket that is ready on all ranks.
struct Agreed {
  BucketId bucket = 0;
  std::uint64_t iteration = 0;
};

/// Agreement among all ranks: which topics all have proposed alike, and which buckets are ready
/// everywhere. Within a node readiness is one counter per bucket in the leader's mapped memory;
/// between nodes it is a frame along the tree (see `Negotiator`). Eager buckets start without
/// agreement; the coordinator knows only which of them have begun and not ended here.
///
/// Nothing is sent while nothing is pending. A rank whose oldest pending topic makes no progress
/// complains; one complaint per subtree and interval reaches the root, which asks all ranks
/// (`StallInspector`). Questions go down the tree, and one report per subtree comes up (`Inquiry`).
/// Ranks that running buckets or inquiries wait for are pinged; a rank that does not answer is mute
/// after half of `peer_timeout`, or `warn_after`, and inquiries go on without its report; after
/// `peer_timeout` it is lost. All of this is repeated at bounded intervals, so a rank that freezes
/// at any time is noticed by its neighbours. That the job has failed goes along the tree, too, and
/// around a lost rank (`ranks_to_tell`).
///
/// While some ranks have joined, the others invite them to everything that they propose or begin
/// (`Invitations`).
///
/// Threads: one, the transport's. Never blocks.
class Coordinator {
 public:
  /// `user_threads` counts the threads of the program that have used the runtime and still run; it
  /// outlives the coordinator. Null: those that wait are all there are. Control frames that are not
  /// the coordinator's go to `control_switch` or to `messages`, if there are any, which outlive it,
  /// too.
  Coordinator(Transport& transport, const ProcessGrid& grid, const Clock& clock,
              CoordinatorOptions options, const std::atomic<int>* user_threads = nullptr,
              ControlSwitch* control_switch = nullptr, MessageFrames* messages = nullptr);

  /// Proposes the next use of `name`. `text` describes it, one line per tensor; `waited` must live
  /// until the decision. `sequence` is that of `Subject`; 0: the name's.
  Topic propose(std::string_view name, std::uint64_t fingerprint, std::string text,
                const Waited& waited, std::uint64_t sequence = 0) {
    return propose(name, fingerprint, Negotiator::Rule::kEqualValues, std::move(text), waited,
                   sequence);
  }

  /// The same with a hint that ranks need not have alike; see `all_hint`.
  Topic propose_with_hint(std::string_view name, std::uint64_t fingerprint, bool hint,
                          std::string text, const Waited& waited, std::uint64_t sequence) {
    return propose(name, (fingerprint & ~kHintBit) | (hint ? kHintBit : 0),
                   Negotiator::Rule::kEqualButLowestBit, std::move(text), waited, sequence);
  }
  /// Whether all ranks gave the hint of what this accepts.
  static bool all_hint(const Frame& decision) { return (decision.least & kHintBit) != 0; }

  /// The same for something that ranks need not have alike: the decision tells all ranks the least
  /// and the greatest value.
  Topic vote(std::string_view name, std::uint64_t value, std::string text, const Waited& waited) {
    return propose(name, value, Negotiator::Rule::kAnyValues, std::move(text), waited, 0);
  }

  /// A vote on whether a name goes: it does if all ranks have used it equally often and none has
  /// work with it. Then no rank knows it any more, and its next use is its first. `uses`: those of
  /// this rank; nothing: it has work with it. Before: the name is decided, and this rank proposes
  /// it no more until the decision on the vote.
  Topic vote_on_end(std::string_view vote, std::string_view name, std::optional<std::uint64_t> uses,
                    std::string text, const Waited& waited);
  /// Whether the name goes by that decision.
  static bool ends(const Frame& accepted) {
    return accepted.greatest != kInUse && accepted.least >> 1 == accepted.greatest >> 1;
  }

  /// This rank is ready for an iteration of a bucket. Iterations of a bucket grow and may have
  /// gaps. After a rejection it takes no more.
  void arrive(BucketId bucket, std::uint64_t iteration, const Subject& subject);

  /// This rank begins an iteration of an eager bucket, which no agreement precedes: it is pending
  /// until `end`, so that complaints, reports and rejections know it.
  void begin(BucketId bucket, std::uint64_t iteration, const Subject& subject);
  /// That iteration has ended here.
  void end(BucketId bucket);
  /// That iteration, which others may not begin, is given up.
  void abandon(BucketId bucket);

  /// This rank joins, which is a vote: when all ranks have joined, it is accepted, and they are
  /// free again. Until then this rank takes part in what it is invited to, and proposes nothing
  /// else of its own but votes. Before: nothing of its own is pending.
  Topic join(const Waited& waited);
  /// The rank that joined last, by the decision on that vote: of those that knew of the most others
  /// the greatest.
  static int last_to_join(const Frame& accepted) {
    return static_cast<int>(static_cast<std::uint32_t>(accepted.greatest));
  }
  /// Ranks that are known to have joined, this one included, until all have.
  const std::set<int>& joined() const { return invitations_.joined(); }
  /// That all have joined next.
  Topic join_topic() const { return next_topic(join_key_); }

  /// This rank closes: it begins nothing more, and all ranks hear of that. They invite it to what
  /// they begin, and it declines what it does not come to. What is its own goes on.
  void close();
  /// Proposes that all close, after `close`. If that is rejected, those that have closed are open
  /// again.
  Topic propose_close(const Waited& waited);
  /// That all close next.
  Topic close_topic() const { return next_topic(close_key_); }
  static bool is_close(const Topic& topic) { return topic.key == name_key(kCloseName); }
  /// Ranks that are known to have closed, this one included; `joined` has them, too.
  const std::set<int>& closed() const { return invitations_.closed(); }
  /// Whether the error is about what such ranks do not come to: what they have come to before,
  /// under the same name or in the same bucket, still ends well.
  static bool is_by_closed(const Error& error) { return error.verb == kCloseVerb; }
  static constexpr std::string_view kCloseVerb = "close";

  /// What it is invited to: to be taken after the decisions. New topics are not over.
  std::vector<Invitation> take_invitations();
  /// This rank, which has joined, has no part in the topic, which fails on all ranks.
  void decline(const Topic& topic, Error error);

  /// The note of this rank's last act, which stall reports quote.
  LastActNote& acts() { return last_; }
  const LastActNote& acts() const { return last_; }

  /// Moves agreement on. Returns whether anything happened.
  bool poll();
  /// Answers peers that ask whether this rank lives. Everything else waits for the next `poll`, so
  /// this may be called in the middle of other work.
  void answer_pings();
  /// Whether anything so waits.
  bool has_postponed() const { return !postponed_.empty(); }

  /// Whether `check_peers` is due; never while nothing waits for other ranks and nothing `runs`.
  bool is_check_due(bool runs);
  /// Complains, pings and judges silence. `awaited` are ranks that running buckets wait for.
  void check_peers(std::span<const int> awaited);

  /// kAccept and kReject frames, in an order that is the same on all ranks; only the rejection of a
  /// use that others have given up already comes when this rank submits it.
  std::vector<Frame> take_decisions() { return std::exchange(decisions_, {}); }
  /// Buckets to start, valid until the next `poll`.
  std::span<const Agreed> take_agreed();

  /// Ends the job: logs the error, tells every rank, and keeps it. The first one wins.
  void fail(const Error& error);
  /// The same for an error of this rank's program, which reports it itself.
  void leave(const Error& error);
  const std::optional<Error>& failure() const { return failure_; }
  /// The same error, of this group of ranks.
  Error in_group(Error error) const {
    error.group = options_.group;
    return error;
  }
  /// Whether the notice of the failure is on its way to all ranks.
  bool has_told() const { return has_told_; }

  /// "agreement on 'x': ..., 'y': ...", or "no agreement".
  std::string describe_wait() const;

  bool is_decided(const Topic& topic) const { return topic.round < next_topic(topic.key).round; }
  /// A topic with this key is pending here.
  bool is_pending(std::uint64_t key) const;
  /// Something of this rank is undecided, or is decided and not taken.
  bool has_pending() const {
    return !proposals_.empty() || !arrivals_.empty() || !begun_.empty() || !decisions_.empty() ||
           !agreed_.empty();
  }
  /// Whether anything waits for other ranks, so that time matters, or a decision is to be taken.
  bool waiting() const {
    return !proposals_.empty() || !arrivals_.empty() || !begun_.empty() || !decisions_.empty() ||
           inspector_.is_busy() || inquiry_.is_open() || !mute_.empty() || parent_owes_answer_;
  }

 private:
  static constexpr std::uint64_t kHintBit = 1;

  /// In a vote on the end of a name: this rank has work with it. Otherwise the value is twice the
  /// number of uses, and one more if others have given up a use to which this rank is yet to come.
  static constexpr std::uint64_t kInUse = ~std::uint64_t{0};

  /// The vote that all ranks have joined goes by this name, and nothing else does.
  static constexpr std::string_view kJoinName = "join";
  static constexpr std::string_view kCloseName = "end of job";

  struct Pending {
    Topic topic;
    std::string_view text;
    const Waited* waited = nullptr;
    std::uint64_t name = 0;
    std::uint64_t sequence = 0;
    bool may_end_early = false;
    std::optional<TimePoint> since = {};  // set at its first check
    std::uint64_t node_arrivals = 0;      // that the leader counts when its node is ready
    bool forwarded = false;
  };
  struct Proposal {
    std::string text;
    Pending pending;
    std::optional<std::uint64_t> ends = {};  // key of the name, in a vote on its end
  };

  Topic propose(std::string_view name, std::uint64_t value, Negotiator::Rule rule, std::string text,
                const Waited& waited, std::uint64_t sequence);
  bool receive_own(ControlFrame& frame);
  bool take_frame();
  void receive();
  void hear(int peer);
  void handle(int peer, const Frame& frame);
  void turn_away(int peer, std::string what);
  bool has_bucket(const Topic& topic) const;
  void send(int peer, const Frame& frame);
  void send_to_children(const Frame& frame);
  void flush();
  void pass_on_invitations();
  void end_join();
  Topic next_topic(std::uint64_t key) const;
  bool is_open_to_all(const Pending& pending) const;
  static Invitation invitation_to(const Pending& pending);
  void invite(const Pending& pending);
  void invite_to_everything();
  void inquire(const Frame& query);
  void give_up_mute_children();
  std::string stuck_in(int rank) const;
  void answer();
  void count_arrivals();
  bool forget(const Topic& topic, bool ends_earlier);
  void end_name(const Frame& accepted);
  void forget_rejected(const Frame& decision);
  void conclude(const std::optional<StallInspector::Finding>& finding);
  void warn(std::string_view text) const;
  JointReport report(const Frame& query) const;
  template <typename Self, typename Visit>
  static void for_each_pending(Self& self, Visit visit);
  void fail_with(Error error);
  void tell(const Error& error, int teller);
  void warn_of_silence();
  void complain(TimePoint now);
  void take_complaint(const Topic& topic);
  void pass_complaint(const Topic& topic);
  std::uint32_t released_counter(BucketId bucket) const;

  Transport& transport_;
  ProcessGrid grid_;
  const Clock& clock_;
  CoordinatorOptions options_;
  const std::atomic<int>* user_threads_;
  ControlSwitch* switch_;
  MessageFrames* messages_;
  CombiningTree tree_;
  int leader_;
  std::uint64_t local_size_;
  Negotiator negotiator_;
  StallInspector inspector_;  // the root's
  Inquiry inquiry_;
  Invitations invitations_;
  const std::uint64_t join_key_, close_key_;
  std::map<std::uint64_t, std::uint64_t> rounds_;  // by key: decisions so far, if any
  std::map<std::uint64_t, Error> refused_;         // by key: why the next use fails
  std::map<Topic, Proposal> proposals_;            // of this rank, undecided
  std::vector<Pending> arrivals_;                  // of this rank, not agreed
  std::vector<std::uint64_t> agreements_;          // by bucket: arrivals that were agreed
  std::vector<Pending> begun_;                     // eager, not ended
  bool invites_ = false;                           // other ranks have joined, this one has not
  bool has_reported_closed_ = false;               // that something fails because of them
  std::vector<std::uint64_t> ended_;               // eager, by bucket: iterations that have ended
  LastActNote last_;
  std::vector<Frame> decisions_;
  std::vector<Agreed> agreed_, taken_;
  PeerWatch watch_;
  ForeignFrames foreign_;
  std::set<int> mute_;  // children whose report was given up, until they are heard
  TimePoint next_check_{};
  TimePoint next_complaint_{};
  bool parent_owes_answer_ = false;  // to a complaint
  ControlFrame incoming_;
  std::deque<ControlFrame> postponed_;
  std::vector<std::byte> outgoing_;
  std::optional<Error> failure_;
  bool has_told_ = false;
};

}  // namespace kolo
