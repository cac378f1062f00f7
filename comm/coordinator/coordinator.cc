#include "comm/coordinator/coordinator.h"

#include <algorithm>
#include <utility>

#include "comm/base/contains.h"
#include "comm/base/log.h"
#include "comm/coordinator/combining_tree.h"

namespace kolo {
namespace {

constexpr const char* kStray = "a stray control frame";

}  // namespace

Coordinator::Coordinator(Transport& transport, const ProcessGrid& grid, const Clock& clock,
                         CoordinatorOptions options, const std::atomic<int>* user_threads,
                         ControlDemux* control_demux, MessageFrames* messages)
    : transport_(transport),
      grid_(grid),
      clock_(clock),
      options_(std::move(options)),
      user_threads_(user_threads),
      demux_(control_demux),
      messages_(messages),
      tree_(CombiningTree::build(transport.rank(), grid)),
      leader_(grid.leader(grid.node(transport.rank()))),
      local_size_(static_cast<std::uint64_t>(grid.local_size(transport.rank()))),
      negotiator_(tree_),
      inspector_(grid.world_size(), {.confirm_after = options_.mismatch_after,
                                     .warn_after = options_.warn_after,
                                     .stall_after = options_.stall_after}),
      inquiry_(tree_),
      announcements_(tree_),
      join_hash_(name_hash(kJoinName)),
      close_hash_(name_hash(kCloseName)),
      watch_(options_.peer_timeout) {}

/// Returns the index of a bucket's counter of released iterations in the leader's memory. These
/// counters follow the counters of ready ranks, whose indices are the bucket numbers.
std::uint32_t Coordinator::released_counter(BucketId bucket) const {
  return options_.buckets + bucket;
}

ProposalKey Coordinator::propose(std::string_view name, std::uint64_t value, Negotiator::Rule rule,
                                 std::string text, const Waitable& waited, std::uint64_t sequence) {
  const std::uint64_t hash = name_hash(name);
  const ProposalKey key = next_key(hash);
  if (const auto refused = refused_.find(hash); refused != refused_.end()) {
    ++rounds_[hash];
    decisions_.push_back(
        {.kind = FrameKind::kReject, .keys = {key}, .error = std::move(refused->second)});
    refused_.erase(refused);
    return key;
  }
  const std::uint64_t own = rule == Negotiator::Rule::kAnyValues ? 0 : hash;
  Proposal& proposal = proposals_[key];
  proposal.text = std::move(text);
  proposal.pending = {.key = key,
                      .text = proposal.text,
                      .waited = &waited,
                      .sequence = sequence != 0 ? sequence : own};
  negotiator_.propose(key, value, rule);
  if (invites_ && is_open_to_all(proposal.pending)) invite(proposal.pending);
  return key;
}

ProposalKey Coordinator::vote_on_end(std::string_view vote, std::string_view name,
                                     std::optional<std::uint64_t> uses, std::string text,
                                     const Waitable& waited) {
  const std::uint64_t hash = name_hash(name);
  const std::uint64_t refused = refused_.contains(hash) ? 1 : 0;
  const ProposalKey key =
      this->vote(vote, uses ? *uses << 1 | refused : kInUse, std::move(text), waited);
  proposals_.at(key).ends = hash;
  return key;
}

/// Forgets a name after an accepted vote, unless a rank has not reached a use that other ranks have
/// given up. Called at the decision, so that all later frames on an edge concern new uses.
void Coordinator::end_name(const Frame& accepted) {
  const auto proposal = proposals_.find(accepted.key);
  if (proposal == proposals_.end() || !proposal->second.ends || !ends(accepted)) return;
  if (accepted.least != accepted.greatest || (accepted.least & 1) != 0) return;
  const std::uint64_t hash = *proposal->second.ends;
  rounds_.erase(hash);
  negotiator_.forget(hash);
  announcements_.forget(hash);
  inspector_.forget(hash);
}

void Coordinator::mark_ready(BucketId bucket, std::uint64_t iteration, const RequestInfo& request) {
  if (agreements_.size() <= bucket) agreements_.resize(bucket + std::size_t{1});
  arrivals_.push_back({.key = {bucket_hash(bucket), iteration},
                       .text = request.text,
                       .waited = &request.waited,
                       .name = request.name,
                       .sequence = request.sequence,
                       .may_end_early = request.may_end_early,
                       .node_arrivals = local_size_ * (agreements_[bucket] + 1)});
  if (invites_) invite(arrivals_.back());
  const std::uint64_t count = transport_.arrive(leader_, bucket);
  if (count % local_size_ != 0) return;
  // This rank is the node's last one. On a single node this releases all ranks; otherwise the
  // leader forwards the readiness.
  if (grid_.num_nodes() == 1) {
    for (int peer : grid_.ranks_of_node(grid_.node(transport_.rank()))) {
      if (peer != transport_.rank()) transport_.ring(peer);
    }
  } else if (leader_ != transport_.rank()) {
    transport_.ring(leader_);
  }
}

void Coordinator::begin(BucketId bucket, std::uint64_t iteration, const RequestInfo& request) {
  if (ended_.size() <= bucket) ended_.resize(bucket + std::size_t{1});
  // Filled in place, because copying the entry would wait for the stores to the original.
  Pending& pending = begun_.emplace_back();
  pending.key = {bucket_hash(bucket), iteration};
  pending.text = request.text;
  pending.waited = &request.waited;
  pending.name = request.name;
  pending.sequence = request.sequence;
  pending.may_end_early = request.may_end_early;
  if (invites_) invite(pending);
}

void Coordinator::end(BucketId bucket) {
  const auto it = std::find_if(begun_.begin(), begun_.end(), [&](const Pending& pending) {
    return pending.key.hash == bucket_hash(bucket);
  });
  if (it == begun_.end()) return;  // `forget` has removed it
  ended_[bucket] = it->key.round + 1;
  *it = begun_.back();
  begun_.pop_back();
}

void Coordinator::abandon(BucketId bucket) {
  std::erase_if(begun_,
                [&](const Pending& pending) { return pending.key.hash == bucket_hash(bucket); });
}

bool Coordinator::poll() {
  if (failure_) return false;
  const std::size_t before = decisions_.size() + agreed_.size();
  receive();
  flush();  // Decisions received before a failure still count.
  // After receiving, because the error that a peer has reported takes precedence over its absence.
  if (const auto error = transport_.failure()) fail_with(*error);
  if (failure_) return true;
  forward_arrivals();
  flush();  // may release buckets of this node
  count_arrivals();
  return decisions_.size() + agreed_.size() > before;
}

std::span<const Agreed> Coordinator::take_agreed() {
  taken_.clear();
  std::swap(taken_, agreed_);
  return taken_;
}

void Coordinator::answer_pings() {
  ControlFrame frame;
  while (!failure_ && receive_own(frame)) {
    const auto known = decode(frame.bytes);
    const auto is = [&](FrameKind kind) { return known && known->kind == kind; };
    if (is(FrameKind::kPing) || is(FrameKind::kStalled) || is(FrameKind::kQuery)) {
      send(frame.peer, {.kind = FrameKind::kPong});
    }
    if (is(FrameKind::kPing)) {
      hear(frame.peer);
    } else {
      postponed_.push_back(std::move(frame));
    }
  }
}

/// Whether the key has a valid bucket number, which is an index of counters in shared memory.
bool Coordinator::has_bucket(const ProposalKey& key) const {
  const BucketId bucket = bucket_of(key.hash);
  return key.hash == bucket_hash(bucket) && bucket < options_.buckets;
}

void Coordinator::hear(int peer) {
  watch_.heard(peer);
  if (!mute_.empty()) mute_.erase(peer);
}

/// Receives the next frame that is not for another group. Returns false if there is none.
bool Coordinator::receive_own(ControlFrame& frame) {
  while (transport_.receive_control(frame)) {
    if (demux_ == nullptr || !demux_->take(frame)) return true;
  }
  return false;
}

bool Coordinator::take_frame() {
  if (postponed_.empty()) return receive_own(incoming_);
  incoming_ = std::move(postponed_.front());
  postponed_.pop_front();
  return true;
}

void Coordinator::receive() {
  while (!failure_ && take_frame()) {
    const auto frame = decode(incoming_.bytes);
    if (frame) {
      hear(incoming_.peer);
      if (incoming_.peer == tree_.parent) parent_owes_answer_ = false;
      handle(incoming_.peer, *frame);
    } else {
      turn_away(incoming_.peer, "a malformed control message");
    }
  }
}

void Coordinator::handle(int peer, const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::kStalled:
      if (!contains(tree_.children, peer)) return turn_away(peer, kStray);
      send(peer, {.kind = FrameKind::kPong});
      take_complaint(frame.key);
      break;
    case FrameKind::kQuery:
      if (peer != tree_.parent) return turn_away(peer, kStray);
      // The report may take long, because a rank of the subtree may be lost.
      if (!tree_.children.empty()) send(peer, {.kind = FrameKind::kPong});
      inquire(frame);
      break;
    case FrameKind::kReport:
      if (!contains(tree_.children, peer)) return turn_away(peer, kStray);
      inquiry_.report(peer, frame.least, frame.report);
      answer();
      break;
    case FrameKind::kWarn:
      if (peer != tree_.parent) return turn_away(peer, kStray);
      warn(frame.error.what);
      send_to_children(frame);
      break;
    case FrameKind::kPing:
      send(peer, {.kind = FrameKind::kPong});
      break;
    case FrameKind::kPong:
      break;
    case FrameKind::kFail:
      if (!failure_) tell(frame.error, peer);
      break;
    case FrameKind::kJoined:
    case FrameKind::kClosed:
      if (frame.least >= static_cast<std::uint64_t>(grid_.world_size()))
        return turn_away(peer, kStray);
      [[fallthrough]];
    case FrameKind::kInvite:
    case FrameKind::kDecline:
      flush();  // Decisions are sent first, because forwarded invitations may depend on them.
      if (!announcements_.receive(peer, frame)) return turn_away(peer, kStray);
      pass_on_invitations();
      break;
    case FrameKind::kRecall:
    case FrameKind::kAsk:
    case FrameKind::kNothing:
      if (frame.key != join_key() && !is_close(frame.key)) break;  // that join has ended
      [[fallthrough]];
    case FrameKind::kOffer:
    case FrameKind::kTake:
    case FrameKind::kRefuse:
    case FrameKind::kRoom:
      if (messages_ == nullptr || !messages_->receive(peer, frame)) turn_away(peer, kStray);
      break;
    case FrameKind::kArrive:
    case FrameKind::kRelease:
      if (!has_bucket(frame.key)) return turn_away(peer, kStray);
      [[fallthrough]];
    default:
      if (!negotiator_.receive(peer, frame)) turn_away(peer, kStray);
  }
}

/// Handles a frame that this peer must not send. Over the network, the frame may come from outside
/// the job and is dropped. Within a node, only ranks of the job can send, so the job fails.
void Coordinator::turn_away(int peer, std::string what) {
  if (!transport_.is_mapped(peer)) return foreign_.drop(peer, what);
  fail({.code = ErrorCode::kInternal,
        .rank = transport_.rank(),
        .peer = peer,
        .verb = "agree",
        .what = "received " + std::move(what)});
}

void Coordinator::send(int peer, const Frame& frame) {
  encode(frame, outgoing_);
  transport_.send_control(peer, outgoing_);
}

void Coordinator::send_to_children(const Frame& frame) {
  if (tree_.children.empty()) return;
  encode(frame, outgoing_);
  for (const int child : tree_.children) transport_.send_control(child, outgoing_);
}

void Coordinator::flush() {
  if (negotiator_.is_quiet() && !inspector_.has_query()) return;
  for (const OutgoingFrame& outgoing : negotiator_.take_outgoing()) {
    send(outgoing.peer, outgoing.frame);
  }
  for (Frame& decision : negotiator_.take_decisions()) {
    if (decision.kind == FrameKind::kAccept) {
      end_name(decision);
      forget(decision.key, /*ends_earlier=*/true);
      ++rounds_[decision.key.hash];
      if (decision.key.hash == join_hash_) end_join();
    } else {
      forget_rejected(decision);
      for (const ProposalKey& key : decision.keys) {
        announcements_.rejected(key);
        if (key.hash == close_hash_) announcements_.end_closing(key.round);
      }
    }
    decisions_.push_back(std::move(decision));
  }
  for (const ProposalKey& key : negotiator_.take_released()) {
    const auto bucket = bucket_of(key.hash);
    transport_.set_counter(released_counter(bucket), key.round + 1);
    for (int peer : grid_.ranks_of_node(grid_.node(transport_.rank()))) {
      if (peer != transport_.rank()) transport_.ring(peer);
    }
  }
  for (const ProposalKey& key : negotiator_.take_conflicts()) inspector_.conflict(key);
  if (inspector_.has_query()) inquire(*inspector_.next_query(clock_.now()));
}

/// Forwards that this node is ready, from its leader to those of other nodes.
void Coordinator::forward_arrivals() {
  if (grid_.num_nodes() == 1 || leader_ != transport_.rank()) return;
  for (Pending& pending : arrivals_) {
    const auto bucket = bucket_of(pending.key.hash);
    if (pending.forwarded || transport_.counter(leader_, bucket) < pending.node_arrivals) continue;
    pending.forwarded = true;
    negotiator_.mark_ready(pending.key);
  }
}

void Coordinator::count_arrivals() {
  for (std::size_t i = 0; i < arrivals_.size();) {
    const Pending& pending = arrivals_[i];
    const auto bucket = bucket_of(pending.key.hash);
    const bool agreed =
        grid_.num_nodes() > 1
            ? transport_.counter(leader_, released_counter(bucket)) > pending.key.round
            : transport_.counter(leader_, bucket) >= pending.node_arrivals;
    if (!agreed) {
      ++i;
      continue;
    }
    ++agreements_[bucket];
    agreed_.push_back({bucket, pending.key.round});
    arrivals_.erase(arrivals_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

/// Forgets a decided proposal. Returns whether anything was pending. Also forgets all iterations of
/// its eager bucket, because ranks may be in different iterations, and iterations of buckets with
/// its name that some ranks may have missed. If `ends_earlier` is false, earlier iterations still
/// complete and are kept.
bool Coordinator::forget(const ProposalKey& key, bool ends_earlier) {
  const auto is_meant = [&](const Pending& p) {
    if (!ends_earlier) return p.key.hash == key.hash && p.key.round >= key.round;
    return p.key.hash == key.hash || (p.may_end_early && p.name == key.hash);
  };
  return proposals_.erase(key) +
             std::erase_if(arrivals_,
                           [&](const Pending& p) {
                             return p.key == key || (p.may_end_early && is_meant(p));
                           }) +
             std::erase_if(begun_, is_meant) >
         0;
}

/// Forgets rejected proposals. A rank that has none of them pending is busy and will reach the same
/// use of the name later; this use then fails, too (`refused_`). A joined rank will not reach the
/// use, and a rank closes only once.
void Coordinator::forget_rejected(const Frame& decision) {
  bool was_waiting = false;
  const bool ends_earlier = !is_by_closed(decision.error);
  for (const ProposalKey& key : decision.keys) was_waiting |= forget(key, ends_earlier);
  for (const ProposalKey& key : decision.keys) {
    const bool is_over =
        announcements_.has_closed() ? key.hash == close_hash_ : announcements_.has_joined();
    if (was_waiting || is_over) {
      ++rounds_[key.hash];
    } else if (!is_bucket_hash(key.hash)) {
      refused_[key.hash] = decision.error;
    }
  }
}

void Coordinator::fail(const Error& error) { fail_with(in_group(error)); }

void Coordinator::fail_with(Error error) {
  if (failure_) return;
  log::report(error);
  leave(error);
}

void Coordinator::leave(const Error& error) {
  if (!failure_) tell(error, -1);
}

/// Ends the job on this rank and forwards the notice. `error.peer` is a rank of this group only if
/// the error names this group.
void Coordinator::tell(const Error& error, int teller) {
  failure_ = error;
  const int lost = error.group == options_.group ? error.peer : -1;
  encode({.kind = FrameKind::kFail, .error = error}, outgoing_);
  for (const int rank : ranks_to_tell(grid_, tree_, lost, teller)) {
    transport_.send_control(rank, outgoing_);
  }
  has_told_ = true;
}

}  // namespace kolo
