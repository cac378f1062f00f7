#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/base/clock.h"
#include "comm/coordinator/negotiator.h"
#include "comm/coordinator/stall_inspector.h"
#include "comm/schedule/bucket_layout.h"
#include "comm/transport/transport.h"
#include "topology/process_grid.h"

namespace kolo {

struct CoordinatorOptions {
  Duration complain_after = std::chrono::seconds(1);  ///< A pending topic is looked into.
  Duration peer_timeout = std::chrono::seconds(10);   ///< An unanswered question means a lost peer.
};

/// A bucket that is ready on all ranks.
struct Agreed {
  BucketId bucket = 0;
  std::uint64_t iteration = 0;
};

/// Agreement among all ranks: which topics all have proposed alike, and which buckets are ready
/// everywhere. Within a node readiness is one counter per bucket in the leader's mapped memory;
/// between nodes it is a frame along the tree (see `Negotiator`). Eager buckets need no agreement
/// to start; of them it only knows what is under way here.
///
/// Nothing is sent while nothing is pending. While something is, silence is looked into: complaints
/// go to the root, which asks all ranks (`StallInspector`); ranks that running buckets wait for are
/// pinged; whoever does not answer within `peer_timeout` is lost.
///
/// Threads: one, the transport's. Never blocks.
class Coordinator {
 public:
  Coordinator(Transport& transport, const ProcessGrid& grid, const Clock& clock,
              CoordinatorOptions options);

  /// Proposes the next use of `name`. `text` describes it, one line per tensor; `waiters` counts
  /// the threads that wait for it and must live until the decision.
  Topic propose(std::string_view name, std::uint64_t fingerprint, std::string text,
                const std::atomic<int>& waiters) {
    return propose(name, fingerprint, Negotiator::Rule::kEqualWords, std::move(text), waiters);
  }

  /// The same for something that ranks need not have alike: the decision tells all the least and
  /// the greatest word.
  Topic vote(std::string_view name, std::uint64_t word, std::string text,
             const std::atomic<int>& waiters) {
    return propose(name, word, Negotiator::Rule::kAnyWords, std::move(text), waiters);
  }

  /// This rank is ready for an iteration of a bucket. Iterations of a bucket grow, and need not
  /// follow each other. After a rejection it takes no more. `text` and `waiters` must live until it
  /// is agreed or rejected.
  void arrive(BucketId bucket, std::uint64_t iteration, std::string_view text,
              const std::atomic<int>& waiters);

  /// This rank begins an iteration of an eager bucket, which no agreement precedes: it is pending
  /// until `end`, so that complaints, reports and rejections know it. `text` and `waiters` must
  /// live until then.
  void begin(BucketId bucket, std::uint64_t iteration, std::string_view text,
             const std::atomic<int>& waiters);
  /// That iteration is at its end here.
  void end(BucketId bucket);
  /// That iteration, which others may not begin, is given up.
  void abandon(BucketId bucket);

  /// Moves agreement on. Returns whether anything happened.
  bool poll();

  /// Whether `look` is due; never while nothing waits for other ranks and nothing `runs`.
  bool is_time_to_look(bool runs);
  /// Looks into silence. `awaited` are ranks that running buckets wait for.
  void look(std::span<const int> awaited);

  /// kAccept and kReject frames, in an order that is the same on all ranks.
  std::vector<Frame> take_decisions() { return std::exchange(decisions_, {}); }
  /// Buckets to start, valid until the next `poll`.
  std::span<const Agreed> take_agreed();

  /// Ends the job: logs the error, tells every rank, and keeps it. The first one wins.
  void fail(const Error& error);
  /// The same for an error of this rank's program, which reports it itself.
  void leave(const Error& error);
  const std::optional<Error>& failure() const { return failure_; }

  /// "agreement on 'x': ..., 'y': ...", or "no agreement".
  std::string describe_wait() const;

  /// Whether anything waits for other ranks, so that time matters.
  bool waiting() const {
    return !proposals_.empty() || !arrivals_.empty() || !begun_.empty() || inspector_.asking();
  }

 private:
  struct Pending {
    Topic topic;
    std::string_view text;
    const std::atomic<int>* waiters;
    std::optional<TimePoint> next_complaint = {};  // set when it is first looked at
    Duration patience{};
    std::uint64_t node_arrivals = 0;  // that the leader counts when its node is ready
    bool forwarded = false;
  };
  struct Proposal {
    std::string text;
    Pending pending;
  };

  Topic propose(std::string_view name, std::uint64_t word, Negotiator::Rule rule, std::string text,
                const std::atomic<int>& waiters);
  void receive();
  void handle(int peer, const Frame& frame);
  void send(int peer, const Frame& frame);
  void flush();
  void count_arrivals();
  void forget(const Topic& topic);
  void conclude(const std::optional<StallInspector::Finding>& finding);
  Frame report(std::uint64_t query) const;
  void complain(Pending& pending, TimePoint now);
  void expect_answer(int peer, TimePoint now);
  std::uint32_t released_counter(BucketId bucket) const;

  Transport& transport_;
  ProcessGrid grid_;
  const Clock& clock_;
  CoordinatorOptions options_;
  CombiningTree tree_;
  int leader_;
  std::uint64_t local_size_;
  Negotiator negotiator_;
  StallInspector inspector_;
  std::map<std::uint64_t, std::uint64_t> rounds_;  // by key: decisions so far
  std::map<Topic, Proposal> proposals_;            // of this rank, undecided
  std::vector<Pending> arrivals_;                  // of this rank, not agreed
  std::vector<std::uint64_t> agreements_;          // by bucket: arrivals that were agreed
  std::vector<Pending> begun_;                     // eager, not at their end
  std::vector<std::uint64_t> ended_;               // eager, by bucket: iterations at their end
  std::vector<Frame> decisions_;
  std::vector<Agreed> agreed_, taken_;
  std::map<int, TimePoint> unanswered_since_;  // peers that were asked something
  std::set<int> awaited_;
  TimePoint next_look_{};
  ControlFrame incoming_;
  std::vector<std::byte> outgoing_;
  std::optional<Error> failure_;
};

}  // namespace kolo
