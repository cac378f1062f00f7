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
#include "comm/coordinator/aggregated_report.h"
#include "comm/coordinator/failure_detector.h"
#include "comm/coordinator/join_announcements.h"
#include "comm/coordinator/last_activity.h"
#include "comm/coordinator/negotiator.h"
#include "comm/coordinator/proposal_key.h"
#include "comm/coordinator/stall_inspector.h"
#include "comm/schedule/bucket_layout.h"
#include "comm/transport/control_frames.h"
#include "comm/transport/transport.h"
#include "topology/process_grid.h"

namespace kolo {

struct CoordinatorOptions {
  /// Delay after which a pending proposal is investigated.
  Duration mismatch_after = std::chrono::seconds(1);
  /// Delay after which a peer that does not answer counts as lost.
  Duration peer_timeout = std::chrono::seconds(10);
  /// Delay after which the root logs which ranks have not submitted an awaited proposal, and the
  /// last action of these ranks. The largest value means never.
  Duration warn_after = Duration::max();
  /// Delay after which ranks that wait for a proposal that other ranks have not submitted fail with
  /// an error. The largest value means never.
  Duration stall_after = Duration::max();
  /// Upper limit of bucket numbers (exclusive).
  BucketId buckets = kMaxBuckets;
  /// Name of the group of ranks for errors, or empty for the whole job.
  std::string group = {};
};

/// Returns the interval between complaints about proposals without progress. The first complaint is
/// sent one interval after the proposal became pending. The error of a stall follows at most two
/// and a half intervals after `stall_after`. Pure.
Duration complaint_interval(const CoordinatorOptions& options);

/// Describes a submission for errors and for the stall inspector.
struct RequestInfo {
  std::string_view text;   ///< Description, one line per tensor. Must stay valid until the
                           ///< decision.
  const Waitable& waited;  ///< Must stay valid until the decision.
  /// Hash of the name of the tensor or operation, or 0 without a name.
  std::uint64_t name = 0;
  /// The order in which all ranks make this submission; see `PendingKey::sequence`. 0 means no
  /// order.
  std::uint64_t sequence = 0;
  /// Whether the operation may end on this rank before other ranks have begun it.
  bool may_end_early = false;
};

/// Receives the control frames of point-to-point messages, which need no agreement.
class MessageFrames {
 public:
  /// Takes a frame from `peer`. Returns false if the frame belongs to no message of this rank.
  virtual bool receive(int peer, const Frame& frame) = 0;

 protected:
  ~MessageFrames() = default;
};

/// An iteration of a bucket that is ready on all ranks.
struct Agreed {
  BucketId bucket = 0;
  std::uint64_t iteration = 0;
};

/// Agreement among all ranks on two things: which proposals all ranks have made with equal values,
/// and which buckets are ready on all ranks. Within a node, ready ranks are counted by one counter
/// per bucket in the leader's mapped memory. Between nodes, readiness is a frame along the tree
/// (see `Negotiator`). Eager buckets start without agreement; the coordinator only records which of
/// them are in progress on this rank.
///
/// Nothing is sent while nothing is pending. A rank whose oldest pending proposal makes no progress
/// sends a complaint up the tree, at most one per subtree and interval. The root then asks all
/// ranks (`StallInspector`): its query is forwarded down the tree, and each subtree returns one
/// report (`Inquiry`). Ranks that running buckets or inquiries wait for are pinged. A rank that
/// does not answer counts as mute after half of `peer_timeout`, or after `warn_after` if that is
/// shorter; inquiries then continue without its report. After `peer_timeout` it counts as lost. The
/// notice that the job has failed is also forwarded along the tree (`ranks_to_tell`).
///
/// While some ranks have joined, each other rank invites them to all operations that it proposes or
/// begins (`JoinAnnouncements`).
///
/// Threads: the transport's only. Never blocks.
class Coordinator {
 public:
  /// `user_threads` counts the running threads of the program that have used the runtime; if null,
  /// one waiting thread means that all threads wait. `control_demux` receives the control frames of
  /// other groups, `messages` the frames of point-to-point messages; both may be null. All
  /// arguments passed by reference or pointer must outlive the coordinator.
  Coordinator(Transport& transport, const ProcessGrid& grid, const Clock& clock,
              CoordinatorOptions options, const std::atomic<int>* user_threads = nullptr,
              ControlDemux* control_demux = nullptr, MessageFrames* messages = nullptr);

  /// Proposes the next use of `name`. `text` describes the use, one line per tensor. `waited` must
  /// stay valid until the decision. `sequence` is that of `RequestInfo`; 0 means the hash of
  /// `name`.
  ProposalKey propose(std::string_view name, std::uint64_t fingerprint, std::string text,
                      const Waitable& waited, std::uint64_t sequence = 0) {
    return propose(name, fingerprint, Negotiator::Rule::kEqualValues, std::move(text), waited,
                   sequence);
  }

  /// Proposes the next use of `name`, with a hint that may differ between ranks; see `all_hint`.
  ProposalKey propose_with_hint(std::string_view name, std::uint64_t fingerprint, bool hint,
                                std::string text, const Waitable& waited, std::uint64_t sequence) {
    return propose(name, (fingerprint & ~kHintBit) | (hint ? kHintBit : 0),
                   Negotiator::Rule::kEqualButLowestBit, std::move(text), waited, sequence);
  }
  /// Whether all ranks passed `hint` true for the accepted proposal.
  static bool all_hint(const Frame& decision) { return (decision.least & kHintBit) != 0; }

  /// Votes: proposes a value that may differ between ranks. The decision contains the least and the
  /// greatest value of all ranks.
  ProposalKey vote(std::string_view name, std::uint64_t value, std::string text,
                   const Waitable& waited) {
    return propose(name, value, Negotiator::Rule::kAnyValues, std::move(text), waited, 0);
  }

  /// Votes on forgetting `name`. All ranks forget it if they have used it equally often and no rank
  /// has work with it; its next use then counts as the first. `uses` is the number of uses by this
  /// rank; empty if this rank has work with the name. Before: all proposals of the name are
  /// decided, and this rank makes no new one before the decision on the vote.
  ProposalKey vote_on_end(std::string_view vote, std::string_view name,
                          std::optional<std::uint64_t> uses, std::string text,
                          const Waitable& waited);
  /// Whether the accepted vote forgets the name.
  static bool ends(const Frame& accepted) {
    return accepted.greatest != kInUse && accepted.least >> 1 == accepted.greatest >> 1;
  }

  /// Marks this rank as ready for an iteration of a bucket. Iteration numbers of a bucket increase
  /// and may have gaps. After a rejection, `mark_ready` must not be called for the bucket again.
  void mark_ready(BucketId bucket, std::uint64_t iteration, const RequestInfo& request);

  /// Begins an iteration of an eager bucket on this rank, without agreement. Complaints, reports
  /// and rejections include the iteration until `end` or `abandon`.
  void begin(BucketId bucket, std::uint64_t iteration, const RequestInfo& request);
  /// Ends the iteration of an eager bucket on this rank.
  void end(BucketId bucket);
  /// Gives up the iteration of an eager bucket, which other ranks may never begin.
  void abandon(BucketId bucket);

  /// Votes that this rank has joined. The vote is accepted when all ranks have joined, which ends
  /// the joined state of all ranks. Until then this rank participates in operations to which it is
  /// invited, and proposes nothing except votes. Before: nothing of this rank is pending.
  ProposalKey join(const Waitable& waited);
  /// Returns the rank that joined last, according to the accepted vote: the highest of the ranks
  /// that knew of the most joined ranks when they joined.
  static int last_to_join(const Frame& accepted) {
    return static_cast<int>(static_cast<std::uint32_t>(accepted.greatest));
  }
  /// Ranks known to have joined or closed, including this one. Empty after all have joined.
  const std::set<int>& joined() const { return announcements_.joined(); }
  /// Key of the next vote that all ranks have joined.
  ProposalKey join_key() const { return next_key(join_hash_); }

  /// Closes: this rank begins no new operations, and notifies all ranks. The others invite it to
  /// operations that they begin, and it declines those in which it does not participate. Its
  /// pending operations continue.
  void close();
  /// Proposes that all ranks close. Before: this rank has called `close()`. If the proposal is
  /// rejected, the closed ranks are open again.
  ProposalKey propose_close(const Waitable& waited);
  /// Key of the next proposal that all ranks close.
  ProposalKey close_key() const { return next_key(close_hash_); }
  std::string_view close_text() const {
    return options_.group.empty() ? "the end of the job" : "the end of the group";
  }
  static bool is_close(const ProposalKey& key) { return key.hash == name_hash(kCloseName); }
  /// Ranks known to have closed, including this one; a subset of `joined()`.
  const std::set<int>& closed() const { return announcements_.closed(); }
  /// Whether the error concerns an operation that a closed rank has declined. Earlier uses of the
  /// same name or bucket still complete normally.
  static bool is_by_closed(const Error& error) { return error.verb == kCloseVerb; }
  static constexpr std::string_view kCloseVerb = "close";

  /// Returns the new invitations of this rank. Call it after `take_decisions`. Invitations to
  /// decided proposals are left out.
  std::vector<Invitation> take_invitations();
  /// Declines a proposal, which then fails on all ranks with `error`. Before: this rank has joined.
  void decline(const ProposalKey& key, Error error);

  /// This rank's last action, for stall reports.
  LastActivity& acts() { return last_; }
  const LastActivity& acts() const { return last_; }

  /// Receives frames and advances agreement. Returns whether there is a decision, agreed bucket or
  /// failure.
  bool poll();
  /// Answers pings of peers. Keeps other frames for the next `poll`, so it may be called in the
  /// middle of other work.
  void answer_pings();
  /// Whether `answer_pings` has kept frames for the next `poll`.
  bool has_postponed() const { return !postponed_.empty(); }

  /// Whether `check_peers` is due. `runs` tells whether buckets run on this rank. The check is
  /// never due if no bucket runs and nothing waits for other ranks.
  bool is_check_due(bool runs);
  /// Sends due complaints and pings, and fails the job if a peer is lost. `awaited` holds the ranks
  /// that running buckets wait for.
  void check_peers(std::span<const int> awaited);

  /// Returns new decisions (kAccept and kReject frames), in the same order on all ranks. One
  /// exception: if other ranks have given up a use before this rank proposes it, the rejection
  /// follows when this rank proposes it.
  std::vector<Frame> take_decisions() { return std::exchange(decisions_, {}); }
  /// Returns the buckets to start. The span is valid until the next call.
  std::span<const Agreed> take_agreed();

  /// Ends the job: logs the error, notifies all ranks, sets `failure`. Only the first error counts.
  void fail(const Error& error);
  /// Ends the job like `fail`, but without logging, for an error that this rank's program reports.
  void leave(const Error& error);
  const std::optional<Error>& failure() const { return failure_; }
  /// Returns a copy of the error that names this group of ranks.
  Error in_group(Error error) const {
    error.group = options_.group;
    return error;
  }
  /// Whether this rank has sent the notice of the failure to its neighbours.
  bool has_told() const { return has_told_; }

  /// Describes pending proposals: "agreement on 'x': ..., 'y': ...", or "no agreement".
  std::string describe_wait() const;

  bool is_decided(const ProposalKey& key) const { return key.round < next_key(key.hash).round; }
  /// Whether a proposal or bucket iteration with this hash is pending on this rank.
  bool is_pending(std::uint64_t hash) const;
  /// Whether a proposal or bucket iteration of this rank is pending, or a decision is not taken.
  bool has_pending() const {
    return !proposals_.empty() || !arrivals_.empty() || !begun_.empty() || !decisions_.empty() ||
           !agreed_.empty();
  }
  /// Whether this rank waits for other ranks, so that `check_peers` is needed, or a decision has
  /// not been taken.
  bool waiting() const {
    return !proposals_.empty() || !arrivals_.empty() || !begun_.empty() || !decisions_.empty() ||
           inspector_.is_busy() || inquiry_.is_open() || !mute_.empty() || parent_owes_answer_;
  }

 private:
  static constexpr std::uint64_t kHintBit = 1;

  /// Value in a vote on forgetting a name: this rank has work with the name. Otherwise the value is
  /// twice the number of uses, plus one if other ranks have given up a use that this rank has not
  /// reached.
  static constexpr std::uint64_t kInUse = ~std::uint64_t{0};

  /// Name reserved for the vote that all ranks have joined.
  static constexpr std::string_view kJoinName = "join";
  static constexpr std::string_view kCloseName = "end of job";

  struct Pending {
    ProposalKey key;
    std::string_view text;
    const Waitable* waited = nullptr;
    std::uint64_t name = 0;
    std::uint64_t sequence = 0;
    bool may_end_early = false;
    std::optional<TimePoint> since = {};  // set at the first check
    std::uint64_t node_arrivals = 0;      // counter value at which the node is ready
    bool forwarded = false;
  };
  struct Proposal {
    std::string text;
    Pending pending;
    std::optional<std::uint64_t> ends = {};  // hash of the name, in a vote on its end
  };

  ProposalKey propose(std::string_view name, std::uint64_t value, Negotiator::Rule rule,
                      std::string text, const Waitable& waited, std::uint64_t sequence);
  bool receive_own(ControlFrame& frame);
  bool take_frame();
  void receive();
  void hear(int peer);
  void handle(int peer, const Frame& frame);
  void turn_away(int peer, std::string what);
  bool has_bucket(const ProposalKey& key) const;
  void send(int peer, const Frame& frame);
  void send_to_children(const Frame& frame);
  void flush();
  void pass_on_invitations();
  void end_join();
  ProposalKey next_key(std::uint64_t hash) const;
  bool is_open_to_all(const Pending& pending) const;
  static Invitation invitation_to(const Pending& pending);
  void invite(const Pending& pending);
  void invite_to_everything();
  void inquire(const Frame& query);
  void give_up_mute_children();
  std::string stuck_in(int rank) const;
  void answer();
  void forward_arrivals();
  void count_arrivals();
  bool forget(const ProposalKey& key, bool ends_earlier);
  void end_name(const Frame& accepted);
  void forget_rejected(const Frame& decision);
  void conclude(const std::optional<StallInspector::Finding>& finding);
  void warn(std::string_view text) const;
  AggregatedReport report(const Frame& query) const;
  template <typename Self, typename Visit>
  static void for_each_pending(Self& self, Visit visit);
  void fail_with(Error error);
  void tell(const Error& error, int teller);
  void warn_of_silence();
  void complain(TimePoint now);
  void take_complaint(const ProposalKey& key);
  void pass_complaint(const ProposalKey& key);
  std::uint32_t released_counter(BucketId bucket) const;

  Transport& transport_;
  ProcessGrid grid_;
  const Clock& clock_;
  CoordinatorOptions options_;
  const std::atomic<int>* user_threads_;
  ControlDemux* demux_;
  MessageFrames* messages_;
  CombiningTree tree_;
  int leader_;
  std::uint64_t local_size_;
  Negotiator negotiator_;
  StallInspector inspector_;  // used on the root only
  Inquiry inquiry_;
  JoinAnnouncements announcements_;
  const std::uint64_t join_hash_, close_hash_;
  std::map<std::uint64_t, std::uint64_t> rounds_;  // number of decisions, by hash; no entry: 0
  std::map<std::uint64_t, Error> refused_;         // error of the next use, by hash
  std::map<ProposalKey, Proposal> proposals_;      // undecided proposals of this rank
  std::vector<Pending> arrivals_;                  // iterations for which this rank is ready
  std::vector<std::uint64_t> agreements_;          // number of agreed iterations, by bucket
  std::vector<Pending> begun_;                     // eager iterations in progress
  bool invites_ = false;                           // whether this rank must invite others
  bool has_reported_closed_ = false;               // whether a failure by closed ranks was logged
  std::vector<std::uint64_t> ended_;               // 1 + last ended iteration, by eager bucket
  LastActivity last_;
  std::vector<Frame> decisions_;
  std::vector<Agreed> agreed_, taken_;
  FailureDetector watch_;
  ForeignFrames foreign_;
  std::set<int> mute_;  // children whose report was given up, until they answer again
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
