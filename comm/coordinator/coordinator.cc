#include "comm/coordinator/coordinator.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "comm/base/log.h"

namespace kolo {
namespace {

/// Between the complaints of a rank, each of which makes the root ask all ranks. It does not grow
/// with the age of what is pending, so a rank that freezes late is noticed as soon as any other.
Duration complaint_interval(const CoordinatorOptions& options) {
  return std::min(options.mismatch_after, options.peer_timeout / 8);
}

/// Short enough that a frozen peer is named within 1.25 `peer_timeout`, even if it freezes right
/// after a complaint was answered.
Duration check_interval(const CoordinatorOptions& options) {
  return std::min(options.mismatch_after / 4, options.peer_timeout / 16);
}

}  // namespace

Coordinator::Coordinator(Transport& transport, const ProcessGrid& grid, const Clock& clock,
                         CoordinatorOptions options, const std::atomic<int>* user_threads,
                         ControlSwitch* control_switch, MessageFrames* messages)
    : transport_(transport),
      grid_(grid),
      clock_(clock),
      options_(std::move(options)),
      user_threads_(user_threads),
      switch_(control_switch),
      messages_(messages),
      tree_(CombiningTree::build(transport.rank(), grid)),
      leader_(grid.leader(grid.node(transport.rank()))),
      local_size_(static_cast<std::uint64_t>(grid.local_size(transport.rank()))),
      negotiator_(tree_),
      inspector_(grid.world_size(), {.confirm_after = options_.mismatch_after,
                                     .warn_after = options_.warn_after,
                                     .stall_after = options_.stall_after}) {}

/// The leader's memory counts the local arrivals of each bucket, and behind those how many of its
/// iterations all nodes have released.
std::uint32_t Coordinator::released_counter(BucketId bucket) const {
  return options_.buckets + bucket;
}

Topic Coordinator::propose(std::string_view name, std::uint64_t value, Negotiator::Rule rule,
                           std::string text, const Waited& waited) {
  const std::uint64_t key = name_key(name);
  const Topic topic{key, rounds_[key]};
  if (const auto refused = refused_.find(key); refused != refused_.end()) {
    ++rounds_[key];
    decisions_.push_back(
        {.kind = FrameKind::kReject, .topics = {topic}, .error = std::move(refused->second)});
    refused_.erase(refused);
    return topic;
  }
  Proposal& proposal = proposals_[topic];
  proposal.text = std::move(text);
  proposal.pending = {.topic = topic,
                      .text = proposal.text,
                      .waited = &waited,
                      .name = rule == Negotiator::Rule::kEqualValues ? key : 0};
  negotiator_.propose(topic, value, rule);
  return topic;
}

void Coordinator::arrive(BucketId bucket, std::uint64_t iteration, const Subject& subject) {
  if (agreements_.size() <= bucket) agreements_.resize(bucket + std::size_t{1});
  arrivals_.push_back({.topic = {bucket_key(bucket), iteration},
                       .text = subject.text,
                       .waited = &subject.waited,
                       .name = subject.name,
                       .node_arrivals = local_size_ * (agreements_[bucket] + 1)});
  const std::uint64_t count = transport_.arrive(leader_, bucket);
  if (count % local_size_ != 0) return;
  // The last arrival of the node: alone it releases everybody, else the leader forwards.
  if (grid_.num_nodes() == 1) {
    for (int peer : grid_.ranks_of_node(grid_.node(transport_.rank()))) {
      if (peer != transport_.rank()) transport_.ring(peer);
    }
  } else if (leader_ != transport_.rank()) {
    transport_.ring(leader_);
  }
}

void Coordinator::begin(BucketId bucket, std::uint64_t iteration, const Subject& subject) {
  if (ended_.size() <= bucket) ended_.resize(bucket + std::size_t{1});
  begun_.push_back({.topic = {bucket_key(bucket), iteration},
                    .text = subject.text,
                    .waited = &subject.waited,
                    .name = subject.name});
}

void Coordinator::end(BucketId bucket) {
  const auto it = std::find_if(begun_.begin(), begun_.end(), [&](const Pending& pending) {
    return pending.topic.key == bucket_key(bucket);
  });
  if (it == begun_.end()) return;  // It was rejected.
  ended_[bucket] = it->topic.round + 1;
  *it = begun_.back();
  begun_.pop_back();
}

void Coordinator::abandon(BucketId bucket) {
  std::erase_if(begun_,
                [&](const Pending& pending) { return pending.topic.key == bucket_key(bucket); });
}

bool Coordinator::poll() {
  if (failure_) return false;
  const std::size_t before = decisions_.size() + agreed_.size();
  receive();
  flush();  // A decision that came before a failure still counts.
  // A peer that left because of a failure has said which: that comes before its own absence.
  if (const auto error = transport_.failure()) fail_with(*error);
  if (failure_) return true;
  count_arrivals();
  flush();
  return decisions_.size() + agreed_.size() > before;
}

std::span<const Agreed> Coordinator::take_agreed() {
  taken_.clear();
  std::swap(taken_, agreed_);
  return taken_;
}

void Coordinator::receive() {
  while (!failure_ && transport_.receive_control(incoming_)) {
    if (switch_ != nullptr && switch_->take(incoming_)) continue;
    const auto frame = decode(incoming_.bytes);
    if (frame) {
      silence_.erase(incoming_.peer);
      handle(incoming_.peer, *frame);
    } else {
      fail(
          {.code = ErrorCode::kInternal,
           .rank = transport_.rank(),
           .peer = incoming_.peer,
           .verb = "agree",
           .what =
               "received a malformed control message; do all ranks run the same version of Kolo?"});
    }
  }
}

void Coordinator::handle(int peer, const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::kStalled:
      inspector_.stalled(frame.topic);
      send(peer, {.kind = FrameKind::kPong});
      break;
    case FrameKind::kQuery:
      // The root asks about everything that is pending, so there is no need to complain as well.
      next_complaint_ = later(clock_.now(), complaint_interval(options_));
      last_.look(clock_.now());
      send(peer, report(frame));
      break;
    case FrameKind::kReport:
      conclude(inspector_.report(peer, frame, clock_.now()));
      break;
    case FrameKind::kWarn:
      warn(frame.error.what);
      break;
    case FrameKind::kPing:
      send(peer, {.kind = FrameKind::kPong});
      break;
    case FrameKind::kPong:
      break;
    case FrameKind::kFail:
      if (!failure_) failure_ = frame.error;
      break;
    case FrameKind::kOffer:
    case FrameKind::kTake:
    case FrameKind::kRefuse:
    case FrameKind::kRoom:
      if (messages_ == nullptr || !messages_->receive(peer, frame)) fail_stray(peer);
      break;
    default:
      if (!negotiator_.receive(peer, frame)) fail_stray(peer);
  }
}

void Coordinator::fail_stray(int peer) {
  fail({.code = ErrorCode::kInternal,
        .rank = transport_.rank(),
        .peer = peer,
        .verb = "agree",
        .what = "received a stray control frame"});
}

void Coordinator::send(int peer, const Frame& frame) {
  encode(frame, outgoing_);
  transport_.send_control(peer, outgoing_);
}

void Coordinator::send_to_others(const Frame& frame, int except) {
  encode(frame, outgoing_);
  for (int peer = 0; peer < grid_.world_size(); ++peer) {
    if (peer != transport_.rank() && peer != except) transport_.send_control(peer, outgoing_);
  }
}

void Coordinator::flush() {
  if (negotiator_.is_quiet() && !inspector_.has_query()) return;
  for (const Negotiator::Outgoing& outgoing : negotiator_.take_outgoing()) {
    send(outgoing.peer, outgoing.frame);
  }
  for (Frame& decision : negotiator_.take_decisions()) {
    if (decision.kind == FrameKind::kAccept) {
      forget(decision.topic);
      ++rounds_[decision.topic.key];
    } else {
      forget_rejected(decision);
    }
    decisions_.push_back(std::move(decision));
  }
  for (const Topic& topic : negotiator_.take_released()) {
    const auto bucket = bucket_of(topic.key);
    transport_.set_counter(released_counter(bucket), topic.round + 1);
    for (int peer : grid_.ranks_of_node(grid_.node(transport_.rank()))) {
      if (peer != transport_.rank()) transport_.ring(peer);
    }
  }
  for (const Topic& topic : negotiator_.take_conflicts()) inspector_.conflict(topic);
  if (const auto query = inspector_.next_query()) {
    next_complaint_ = later(clock_.now(), complaint_interval(options_));
    last_.look(clock_.now());
    send_to_others(*query);
    for (int peer = 0; peer < grid_.world_size(); ++peer) {
      if (peer != transport_.rank()) expect_answer(peer);
    }
    conclude(inspector_.report(transport_.rank(), report(*query), clock_.now()));
  }
}

void Coordinator::count_arrivals() {
  for (std::size_t i = 0; i < arrivals_.size();) {
    Pending& pending = arrivals_[i];
    const auto bucket = bucket_of(pending.topic.key);
    const bool node_ready = transport_.counter(leader_, bucket) >= pending.node_arrivals;
    bool agreed = node_ready;
    if (grid_.num_nodes() > 1) {
      if (node_ready && leader_ == transport_.rank() && !pending.forwarded) {
        pending.forwarded = true;
        negotiator_.arrive(pending.topic);
        flush();
      }
      agreed = transport_.counter(leader_, released_counter(bucket)) > pending.topic.round;
    }
    if (!agreed) {
      ++i;
      continue;
    }
    ++agreements_[bucket];
    agreed_.push_back({bucket, pending.topic.round});
    arrivals_.erase(arrivals_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

bool Coordinator::forget(const Topic& topic) {
  const auto is_topic = [&](const Pending& pending) { return pending.topic == topic; };
  return proposals_.erase(topic) + std::erase_if(arrivals_, is_topic) +
             std::erase_if(begun_, is_topic) >
         0;
}

/// A rank that had none of these topics pending was busy, and will come to the same use of the
/// name: it then fails like those of the other ranks.
void Coordinator::forget_rejected(const Frame& decision) {
  bool was_waiting = false;
  for (const Topic& topic : decision.topics) was_waiting |= forget(topic);
  for (const Topic& topic : decision.topics) {
    if (was_waiting) {
      ++rounds_[topic.key];
    } else if (!is_bucket_key(topic.key)) {
      refused_[topic.key] = decision.error;
    }
  }
}

void Coordinator::conclude(const std::optional<StallInspector::Finding>& finding) {
  if (const auto warning = inspector_.take_warning()) {
    warn(warning->text);
    if (warning->is_for_all_ranks) {
      send_to_others({.kind = FrameKind::kWarn, .error = {.what = warning->text}});
    }
  }
  if (!finding) return;
  Error error = finding->error;
  error.group = options_.group;
  log::report(error);
  negotiator_.reject(finding->topics, error);
}

void Coordinator::warn(std::string_view text) const {
  log::warn(options_.group.empty() ? std::string(text)
                                   : fmt::format("group {}: {}", options_.group, text));
}

template <typename Visit>
void Coordinator::for_each_pending(Visit visit) {
  for (auto& [topic, proposal] : proposals_) visit(proposal.pending);
  for (Pending& pending : arrivals_) visit(pending);
  for (Pending& pending : begun_) visit(pending);
}

template <typename Visit>
void Coordinator::for_each_pending(Visit visit) const {
  for (const auto& [topic, proposal] : proposals_) visit(proposal.pending);
  for (const Pending& pending : arrivals_) visit(pending);
  for (const Pending& pending : begun_) visit(pending);
}

std::string Coordinator::describe_wait() const {
  std::string text;
  const auto add = [&](std::string_view topic) {
    text += fmt::format("{}{}", text.empty() ? "agreement on " : ", ",
                        topic.substr(0, topic.find('\n')));
  };
  for_each_pending([&](const Pending& pending) { add(pending.text); });
  return text.empty() ? "no agreement" : text;
}

Frame Coordinator::report(const Frame& query) const {
  Frame frame{.kind = FrameKind::kReport, .least = query.least, .last = last_.at(clock_.now())};
  std::map<const Waited*, int> waiters;
  for_each_pending([&](const Pending& pending) {
    const int count = waiters[pending.waited] = pending.waited->waiters();
    const bool is_in_full = pending.topic == query.topic;
    frame.pending.push_back(
        {.topic = pending.topic,
         .blocking = count > 0,
         .text = std::string(is_in_full ? pending.text
                                        : pending.text.substr(0, pending.text.find('\n'))),
         .name = pending.name});
  });
  for (const Topic& topic : query.topics) {
    const auto bucket = bucket_of(topic.key);
    if (bucket >= ended_.size() || ended_[bucket] <= topic.round) continue;
    frame.pending.push_back({.topic = topic, .past = true});
  }
  int waiting = 0;
  for (const auto& [waited, count] : waiters) waiting += count;
  const int threads = user_threads_ == nullptr ? 0 : user_threads_->load(std::memory_order_acquire);
  frame.all_wait = waiting > 0 && waiting >= threads;
  return frame;
}

bool Coordinator::is_check_due(bool runs) {
  if (failure_) return false;
  if (runs || waiting()) return clock_.now() >= next_check_;
  last_check_.reset();
  if (!silence_.empty()) silence_.clear();
  if (!watched_.empty()) watched_.clear();
  return false;
}

void Coordinator::check_peers(std::span<const int> awaited) {
  const TimePoint now = clock_.now();
  next_check_ = later(now, check_interval(options_));
  last_.look(now);
  count_silence(now, awaited);
  if (failure_) return;
  complain(now);
  inspector_.tick(now);
  ping_silent(awaited);
}

/// Adds the time since the last check to the silence of peers. Time in which this rank itself was
/// stopped proves nothing about them, so one check adds a quarter of the limit at most.
void Coordinator::count_silence(TimePoint now, std::span<const int> awaited) {
  const Duration elapsed = last_check_ ? now - *last_check_ : Duration(0);
  last_check_ = now;
  for (auto& [peer, silence] : silence_) {
    silence += std::min(elapsed, options_.peer_timeout / 4);
    if (silence < options_.peer_timeout) continue;
    const bool is_awaited = std::find(awaited.begin(), awaited.end(), peer) != awaited.end();
    const auto seconds = std::chrono::duration<double>(options_.peer_timeout).count();
    fail({.code = ErrorCode::kPeerLost,
          .rank = transport_.rank(),
          .peer = peer,
          .verb = is_awaited ? "run" : "agree",
          .what = fmt::format("rank {} has been silent for {:.3g} s; if it was only slow, raise "
                              "peer_timeout",
                              peer, seconds)});
    return;
  }
}

/// A peer that something waits for in two consecutive checks is asked for a sign of life. A rank
/// that owes the root a report may have frozen after an older frame of its own seemed to answer.
void Coordinator::ping_silent(std::span<const int> awaited) {
  const std::set<int> previous =
      std::exchange(watched_, std::set<int>(awaited.begin(), awaited.end()));
  for (const int rank : inspector_.silent_ranks()) watched_.insert(rank);
  for (const int peer : watched_) {
    if (!previous.contains(peer)) continue;
    if (!silence_.contains(peer)) send(peer, {.kind = FrameKind::kPing});
    expect_answer(peer);
  }
}

/// One complaint stands for everything that is pending here: the root asks about all of it.
void Coordinator::complain(TimePoint now) {
  const Pending* oldest = nullptr;
  for_each_pending([&](Pending& pending) {
    if (!pending.since) pending.since = now;
    if (oldest == nullptr || *pending.since < *oldest->since) oldest = &pending;
  });
  const Duration interval = complaint_interval(options_);
  if (oldest == nullptr || now - *oldest->since < interval || now < next_complaint_) return;
  next_complaint_ = later(now, interval);
  if (tree_.root == transport_.rank()) {
    inspector_.stalled(oldest->topic);
  } else {
    send(tree_.root, {.kind = FrameKind::kStalled, .topic = oldest->topic});
    expect_answer(tree_.root);
  }
}

void Coordinator::expect_answer(int peer) { silence_.try_emplace(peer, Duration(0)); }

void Coordinator::fail(const Error& error) {
  Error named = error;
  named.group = options_.group;
  fail_with(std::move(named));
}

void Coordinator::fail_with(Error error) {
  if (failure_) return;
  log::report(error);
  leave(error);
}

/// Tells every rank itself, since the tree may lead through the lost one. Ranks that were told pass
/// nothing on.
void Coordinator::leave(const Error& error) {
  if (failure_) return;
  failure_ = error;
  send_to_others({.kind = FrameKind::kFail, .error = error}, error.peer);
}

}  // namespace kolo
