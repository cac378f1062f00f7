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
  /// A proposal that is pending for this long is investigated.
  Duration mismatch_after = std::chrono::seconds(1);
  /// A peer that does not answer for this long is lost.
  Duration peer_timeout = std::chrono::seconds(10);
  /// After ranks have waited in vain for a proposal for this long, the root logs which ranks lack
  /// it and what those ranks did last; the largest value: never.
  Duration warn_after = Duration::max();
  /// Ranks that wait in vain for a proposal for this long fail with an error; the largest value:
  /// never.
  Duration stall_after = Duration::max();
  /// Bucket numbers are smaller than this.
  BucketId buckets = kMaxBuckets;
  /// Name of the group of ranks, for errors; empty: the whole job.
  std::string group = {};
};

/// Interval between complaints about proposals without progress. The first complaint comes one
/// interval after the proposal became pending; the error of a stall comes at most two and a half
/// intervals after the limit. Pure.
Duration complaint_interval(const CoordinatorOptions& options);

/// Describes a submission for errors and for the stall inspector.
struct RequestInfo {
  std::string_view text;   ///< Description, one line per tensor; must live until the decision.
  const Waitable& waited;  ///< Must live until the decision.
  /// Hash of the tensor's or operation's name; 0: none.
  std::uint64_t name = 0;
  /// Hash of the name whose uses all ranks make in the same order, or of this submission's place in
  /// such an order; 0: none.
  std::uint64_t sequence = 0;
  /// Whether it may end on this rank before other ranks have begun theirs.
  bool may_end_early = false;
};

/// Receives the frames of messages between two ranks, which need no agreement.
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

/// Agreement among all ranks: which proposals all ranks have proposed with equal values, and which
/// buckets are ready everywhere. Within a node, readiness is one counter per bucket in the leader's
/// mapped memory; between nodes it is a frame along the tree (see `Negotiator`). Eager buckets
/// start without agreement; the coordinator only tracks which of them have begun and not ended on
/// this rank.
///
/// Nothing is sent while nothing is pending. A rank whose oldest pending proposal makes no progress
/// complains; one complaint per subtree and interval reaches the root, which asks all ranks
/// (`StallInspector`). Questions go down the tree, and one report per subtree comes up (`Inquiry`).
/// Ranks that running buckets or inquiries wait for are pinged. A rank that does not answer is mute
/// after half of `peer_timeout`, or after `warn_after`, and inquiries continue without its report;
/// after `peer_timeout` it is lost. All of this is repeated at bounded intervals, so the neighbours
/// of a rank notice whenever it freezes. The notice that the job has failed also goes along the
/// tree, and around a lost rank (`ranks_to_tell`).
///
/// While some ranks have joined, the other ranks invite them to everything that they propose or
/// begin (`JoinAnnouncements`).
///
/// Threads: one, the transport's. Never blocks.
class Coordinator {
 public:
  /// `user_threads` counts the running threads of the program that have used the runtime; it
  /// outlives the coordinator. Null: all such threads are known to wait. Control frames that are
  /// not addressed to the coordinator go to `control_demux` or to `messages`; either may be null
  /// and outlives the coordinator.
  Coordinator(Transport& transport, const ProcessGrid& grid, const Clock& clock,
              CoordinatorOptions options, const std::atomic<int>* user_threads = nullptr,
              ControlDemux* control_demux = nullptr, MessageFrames* messages = nullptr);

  /// Proposes the next use of `name`. `text` describes it, one line per tensor; `waited` must live
  /// until the decision. `sequence` is as in `RequestInfo`; 0: use the hash of `name`.
  ProposalKey propose(std::string_view name, std::uint64_t fingerprint, std::string text,
                      const Waitable& waited, std::uint64_t sequence = 0) {
    return propose(name, fingerprint, Negotiator::Rule::kEqualValues, std::move(text), waited,
                   sequence);
  }

  /// As `propose`, with a hint that may differ between ranks; see `all_hint`.
  ProposalKey propose_with_hint(std::string_view name, std::uint64_t fingerprint, bool hint,
                                std::string text, const Waitable& waited, std::uint64_t sequence) {
    return propose(name, (fingerprint & ~kHintBit) | (hint ? kHintBit : 0),
                   Negotiator::Rule::kEqualButLowestBit, std::move(text), waited, sequence);
  }
  /// Whether all ranks gave the hint for the proposal that `decision` accepts.
  static bool all_hint(const Frame& decision) { return (decision.least & kHintBit) != 0; }

  /// As `propose`, for a value that may differ between ranks: the decision gives all ranks the
  /// least and the greatest value.
  ProposalKey vote(std::string_view name, std::uint64_t value, std::string text,
                   const Waitable& waited) {
    return propose(name, value, Negotiator::Rule::kAnyValues, std::move(text), waited, 0);
  }

  /// Starts a vote on the end of a name: it is forgotten if all ranks have used it equally often
  /// and no rank has work with it. Its next use then counts as its first. `uses`: the uses by this
  /// rank; empty: this rank has work with it. Before: the name is decided, and this rank does not
  /// propose it again before the decision on the vote.
  ProposalKey vote_on_end(std::string_view vote, std::string_view name,
                          std::optional<std::uint64_t> uses, std::string text,
                          const Waitable& waited);
  /// Whether the accepted vote ends the name.
  static bool ends(const Frame& accepted) {
    return accepted.greatest != kInUse && accepted.least >> 1 == accepted.greatest >> 1;
  }

  /// Marks this rank as ready for an iteration of a bucket. Iterations of a bucket increase and may
  /// have gaps. After a rejection the bucket accepts no more.
  void arrive(BucketId bucket, std::uint64_t iteration, const RequestInfo& request);

  /// Starts an iteration of an eager bucket on this rank, without agreement. It is pending until
  /// `end`, so that complaints, reports and rejections include it.
  void begin(BucketId bucket, std::uint64_t iteration, const RequestInfo& request);
  /// Ends that iteration on this rank.
  void end(BucketId bucket);
  /// Gives up that iteration, which other ranks may never begin.
  void abandon(BucketId bucket);

  /// Joins, which is a vote: it is accepted when all ranks have joined, and then they are free
  /// again. Until then this rank takes part in operations that it is invited to, and proposes
  /// nothing of its own except votes. Before: this rank has nothing of its own pending.
  ProposalKey join(const Waitable& waited);
  /// The rank that joined last, according to the decision on the vote: among the ranks that knew of
  /// the most joined ranks, the highest.
  static int last_to_join(const Frame& accepted) {
    return static_cast<int>(static_cast<std::uint32_t>(accepted.greatest));
  }
  /// Ranks known to have joined, including this one, until all have.
  const std::set<int>& joined() const { return announcements_.joined(); }
  /// ProposalKey of the next vote that all ranks have joined.
  ProposalKey join_key() const { return next_key(join_hash_); }

  /// Closes: this rank begins nothing new, and all ranks are told. The others invite it to what
  /// they begin, and it declines whatever it does not take part in. Its own pending work continues.
  void close();
  /// Proposes that all ranks close, after `close`. If the proposal is rejected, the closed ranks
  /// are open again.
  ProposalKey propose_close(const Waitable& waited);
  /// ProposalKey of the next proposal that all ranks close.
  ProposalKey close_key() const { return next_key(close_hash_); }
  static bool is_close(const ProposalKey& key) { return key.hash == name_hash(kCloseName); }
  /// Ranks known to have closed, including this one; `joined` contains them too.
  const std::set<int>& closed() const { return announcements_.closed(); }
  /// Whether the error concerns work that a closed rank does not take part in. Earlier uses of the
  /// same name or bucket, in which that rank took part, still complete normally.
  static bool is_by_closed(const Error& error) { return error.verb == kCloseVerb; }
  static constexpr std::string_view kCloseVerb = "close";

  /// Pending invitations; read them after the decisions. None of the new proposals has ended.
  std::vector<Invitation> take_invitations();
  /// Declines a proposal on this rank, which has joined; the proposal fails on all ranks.
  void decline(const ProposalKey& key, Error error);

  /// Note of this rank's last action, for stall reports.
  LastActivity& acts() { return last_; }
  const LastActivity& acts() const { return last_; }

  /// Advances agreement. Returns whether there was progress.
  bool poll();
  /// Answers peers that ask whether this rank lives. Other frames wait for the next `poll`, so this
  /// may be called in the middle of other work.
  void answer_pings();
  /// Whether frames wait for the next `poll`.
  bool has_postponed() const { return !postponed_.empty(); }

  /// Whether `check_peers` is due; never while nothing waits for other ranks and nothing `runs`.
  bool is_check_due(bool runs);
  /// Complains, pings and judges silent peers. `awaited` holds the ranks that running buckets wait
  /// for.
  void check_peers(std::span<const int> awaited);

  /// kAccept and kReject frames, in the same order on all ranks, with one exception: the rejection
  /// of a use that other ranks have given up comes when this rank submits that use.
  std::vector<Frame> take_decisions() { return std::exchange(decisions_, {}); }
  /// Buckets to start, valid until the next `poll`.
  std::span<const Agreed> take_agreed();

  /// Ends the job: logs the error, tells every rank, and keeps it. Only the first error counts.
  void fail(const Error& error);
  /// As `fail`, for an error of this rank's program, which reports it itself.
  void leave(const Error& error);
  const std::optional<Error>& failure() const { return failure_; }
  /// A copy of the error that names this group of ranks.
  Error in_group(Error error) const {
    error.group = options_.group;
    return error;
  }
  /// Whether the notice of the failure is on its way to all ranks.
  bool has_told() const { return has_told_; }

  /// "agreement on 'x': ..., 'y': ...", or "no agreement".
  std::string describe_wait() const;

  bool is_decided(const ProposalKey& key) const { return key.round < next_key(key.hash).round; }
  /// Whether a proposal with this hash is pending on this rank.
  bool is_pending(std::uint64_t hash) const;
  /// Whether a proposal of this rank is undecided, or a decision has not been taken.
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

  /// Value in a vote on the end of a name: this rank has work with it. Otherwise the value is twice
  /// the number of uses, plus one if other ranks have given up a use that this rank has not reached
  /// yet.
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
  std::map<std::uint64_t, std::uint64_t> rounds_;  // by hash: number of decisions; no entry: 0
  std::map<std::uint64_t, Error> refused_;         // by hash: why the next use fails
  std::map<ProposalKey, Proposal> proposals_;      // of this rank, undecided
  std::vector<Pending> arrivals_;                  // of this rank, not agreed
  std::vector<std::uint64_t> agreements_;          // by bucket: arrivals that were agreed
  std::vector<Pending> begun_;                     // eager, not ended
  bool invites_ = false;                           // other ranks have joined, this one has not
  bool has_reported_closed_ = false;               // that a proposal fails because of closed ranks
  std::vector<std::uint64_t> ended_;               // eager buckets: number of ended iterations
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
