#include "comm/coordinator/coordinator.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "comm/base/log.h"

namespace kolo {
namespace {

// The counters of the leader's memory: how many local arrivals a bucket has had, and how many of
// its iterations all nodes have released.
constexpr std::uint32_t kFirstReleasedCounter = kMaxBuckets;

/// How often time is looked at: often enough for tests with short time-outs, never for its own
/// sake.
Duration look_interval(const CoordinatorOptions& options) {
  return std::min(options.complain_after, options.peer_timeout) / 4;
}

}  // namespace

Coordinator::Coordinator(Transport& transport, const ProcessGrid& grid, const Clock& clock,
                         CoordinatorOptions options)
    : transport_(transport),
      grid_(grid),
      clock_(clock),
      options_(options),
      tree_(CombiningTree::build(transport.rank(), grid)),
      leader_(grid.leader(grid.node(transport.rank()))),
      local_size_(static_cast<std::uint64_t>(grid.local_size(transport.rank()))),
      negotiator_(tree_),
      inspector_(grid.world_size()) {}

std::uint32_t Coordinator::released_counter(BucketId bucket) const {
  return kFirstReleasedCounter + bucket;
}

Topic Coordinator::propose(std::string_view name, std::uint64_t word, Negotiator::Rule rule,
                           std::string text, const std::atomic<int>& waiters) {
  const std::uint64_t key = name_key(name);
  const Topic topic{key, rounds_[key]};
  Proposal& proposal = proposals_[topic];
  proposal.text = std::move(text);
  proposal.pending = {.topic = topic, .text = proposal.text, .waiters = &waiters};
  negotiator_.propose(topic, word, rule);
  return topic;
}

void Coordinator::arrive(BucketId bucket, std::uint64_t iteration, std::string_view text,
                         const std::atomic<int>& waiters) {
  if (agreements_.size() <= bucket) agreements_.resize(bucket + std::size_t{1});
  arrivals_.push_back({.topic = {bucket_key(bucket), iteration},
                       .text = text,
                       .waiters = &waiters,
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

void Coordinator::begin(BucketId bucket, std::uint64_t iteration, std::string_view text,
                        const std::atomic<int>& waiters) {
  if (ended_.size() <= bucket) ended_.resize(bucket + std::size_t{1});
  begun_.push_back({.topic = {bucket_key(bucket), iteration}, .text = text, .waiters = &waiters});
}

void Coordinator::end(BucketId bucket) {
  const auto it = std::find_if(begun_.begin(), begun_.end(), [&](const Pending& pending) {
    return pending.topic.key == bucket_key(bucket);
  });
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
  if (const auto error = transport_.failure()) {
    fail(*error);
    return true;
  }
  const std::size_t before = decisions_.size() + agreed_.size();
  receive();
  flush();
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
    const auto frame = decode(incoming_.bytes);
    if (frame) {
      unanswered_since_.erase(incoming_.peer);
      handle(incoming_.peer, *frame);
    } else {
      fail({.code = ErrorCode::kInternal,
            .rank = transport_.rank(),
            .peer = incoming_.peer,
            .verb = "agree",
            .what = "received a malformed control frame"});
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
      send(peer, report(frame.least));
      break;
    case FrameKind::kReport:
      conclude(inspector_.report(peer, frame));
      break;
    case FrameKind::kPing:
      send(peer, {.kind = FrameKind::kPong});
      break;
    case FrameKind::kPong:
      break;
    case FrameKind::kFail:
      if (!failure_) failure_ = frame.error;
      break;
    default:
      if (!negotiator_.receive(peer, frame)) {
        fail({.code = ErrorCode::kInternal,
              .rank = transport_.rank(),
              .peer = peer,
              .verb = "agree",
              .what = "received a stray control frame"});
      }
  }
}

void Coordinator::send(int peer, const Frame& frame) {
  encode(frame, outgoing_);
  transport_.send_control(peer, outgoing_);
}

void Coordinator::flush() {
  if (negotiator_.is_quiet() && !inspector_.has_query()) return;
  for (const Negotiator::Outgoing& outgoing : negotiator_.take_outgoing()) {
    send(outgoing.peer, outgoing.frame);
  }
  for (Frame& decision : negotiator_.take_decisions()) {
    forget(decision.topic);
    if (decision.kind == FrameKind::kAccept) ++rounds_[decision.topic.key];
    for (const Topic& topic : decision.topics) {
      forget(topic);
      ++rounds_[topic.key];
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
    const TimePoint now = clock_.now();
    for (int peer = 0; peer < grid_.world_size(); ++peer) {
      if (peer == transport_.rank()) continue;
      send(peer, *query);
      expect_answer(peer, now);
    }
    conclude(inspector_.report(transport_.rank(), report(query->least)));
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

void Coordinator::forget(const Topic& topic) {
  proposals_.erase(topic);
  const auto is_topic = [&](const Pending& pending) { return pending.topic == topic; };
  std::erase_if(arrivals_, is_topic);
  std::erase_if(begun_, is_topic);
}

void Coordinator::conclude(const std::optional<StallInspector::Finding>& finding) {
  if (const auto note = inspector_.take_note()) log::warn(*note);
  if (!finding) return;
  log::error(finding->error.to_string());
  negotiator_.reject(finding->topics, finding->error);
}

std::string Coordinator::describe_wait() const {
  std::string text;
  const auto add = [&](std::string_view topic) {
    text += fmt::format("{}{}", text.empty() ? "agreement on " : ", ",
                        topic.substr(0, topic.find('\n')));
  };
  for (const auto& [topic, proposal] : proposals_) add(proposal.text);
  for (const Pending& pending : arrivals_) add(pending.text);
  for (const Pending& pending : begun_) add(pending.text);
  return text.empty() ? "no agreement" : text;
}

Frame Coordinator::report(std::uint64_t query) const {
  Frame frame{.kind = FrameKind::kReport, .least = query};
  const auto add = [&](const Pending& pending) {
    frame.pending.push_back({.topic = pending.topic,
                             .blocking = pending.waiters->load(std::memory_order_acquire) > 0,
                             .text = std::string(pending.text)});
  };
  for (const auto& [topic, proposal] : proposals_) add(proposal.pending);
  for (const Pending& pending : arrivals_) add(pending);
  for (const Pending& pending : begun_) add(pending);
  for (std::size_t bucket = 0; bucket < ended_.size(); ++bucket) {
    if (ended_[bucket] == 0) continue;
    const Topic last{bucket_key(static_cast<BucketId>(bucket)), ended_[bucket] - 1};
    frame.pending.push_back({.topic = last, .text = {}, .past = true});
  }
  return frame;
}

bool Coordinator::is_time_to_look(bool runs) {
  if (failure_) return false;
  if (runs || waiting()) return clock_.now() >= next_look_;
  if (!unanswered_since_.empty()) unanswered_since_.clear();
  if (!awaited_.empty()) awaited_.clear();
  return false;
}

void Coordinator::look(std::span<const int> awaited) {
  const TimePoint now = clock_.now();
  next_look_ = now + look_interval(options_);

  for (auto& [topic, proposal] : proposals_) complain(proposal.pending, now);
  for (Pending& pending : arrivals_) complain(pending, now);
  for (Pending& pending : begun_) complain(pending, now);

  // A peer that is waited for in two looks in a row is asked for a sign of life.
  const std::set<int> previous =
      std::exchange(awaited_, std::set<int>(awaited.begin(), awaited.end()));
  for (int peer : awaited_) {
    if (!previous.contains(peer)) continue;
    if (!unanswered_since_.contains(peer)) {
      send(peer, {.kind = FrameKind::kPing});
    }
    expect_answer(peer, now);
  }
  for (const auto& [peer, since] : unanswered_since_) {
    if (now - since < options_.peer_timeout) continue;
    const auto seconds = std::chrono::duration<double>(options_.peer_timeout).count();
    fail({.code = ErrorCode::kPeerLost,
          .rank = transport_.rank(),
          .peer = peer,
          .verb = awaited_.contains(peer) ? "run" : "agree",
          .what = fmt::format("rank {} gives no sign of life for {:.3g} s", peer, seconds)});
    return;
  }
}

void Coordinator::complain(Pending& pending, TimePoint now) {
  if (!pending.next_complaint) {
    pending.patience = options_.complain_after;
    pending.next_complaint = now + pending.patience;
  }
  if (now < *pending.next_complaint) return;
  pending.patience *= 2;
  pending.next_complaint = now + pending.patience;
  if (tree_.root == transport_.rank()) {
    inspector_.stalled(pending.topic);
    return;
  }
  send(tree_.root, {.kind = FrameKind::kStalled, .topic = pending.topic});
  expect_answer(tree_.root, now);
}

void Coordinator::expect_answer(int peer, TimePoint now) { unanswered_since_.emplace(peer, now); }

void Coordinator::fail(const Error& error) {
  if (failure_) return;
  log::error(error.to_string());
  leave(error);
}

void Coordinator::leave(const Error& error) {
  if (failure_) return;
  failure_ = error;
  const Frame frame{.kind = FrameKind::kFail, .error = error};
  for (int peer = 0; peer < grid_.world_size(); ++peer) {
    if (peer != transport_.rank() && peer != error.peer) send(peer, frame);
  }
}

}  // namespace kolo
