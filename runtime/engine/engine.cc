#include "runtime/engine/engine.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <xxhash.h>

#include "comm/base/log.h"
#include "runtime/plan/gradient_plan.h"
#include "runtime/plan/operation_plan.h"

namespace kolo {
namespace {

constexpr std::string_view kCloseName = "end of job";

constexpr std::string_view kRetirement = "retirement";
/// In a vote on it: an operation is not idle at this rank.
constexpr std::uint64_t kBusyBit = std::uint64_t{1} << 63;

/// After a failure the engine goes on polling this long, so that the news reaches peers.
constexpr Duration kLinger = std::chrono::milliseconds(300);
/// A device that has lost a peer may be ahead of the news why; after this long it speaks itself.
constexpr Duration kCauseWithin = std::chrono::milliseconds(500);
/// At an orderly end the device's groups have this long to end, too.
constexpr Duration kFinalizeWithin = std::chrono::seconds(5);

/// Operations and gradient sets have name spaces of their own.
std::string operation_topic_name(const Operation& operation) {
  return operation.kind == OperationKind::kClose ? std::string(kCloseName)
                                                 : "operation " + operation.name;
}

std::uint64_t hash(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

std::string_view first_line(std::string_view text) { return text.substr(0, text.find('\n')); }

/// Whether a plan that fails so fails on all ranks: an option or a call that does not fit. Anything
/// else, such as the memory of one machine, may be this rank's alone.
bool fails_alike(const Error& error) {
  return error.code == ErrorCode::kUsage || error.code == ErrorCode::kConfig;
}

/// A stall ends a little before the time-out of the waits it blocks, and can tell more than they.
CoordinatorOptions coordinator_options(const Options& options) {
  const Duration limit = saturated(options.operation_timeout);
  return {.mismatch_after = saturated(options.mismatch_after),
          .peer_timeout = saturated(options.peer_timeout),
          .stall_after = limit == Duration(0) ? Duration::max() : limit / 10 * 9};
}

}  // namespace

Engine::Engine(Transport& transport, const ProcessGrid& grid, EngineClocks clocks,
               const Options& options, const Calibration& calibration,
               const TransportLimits& limits, DevicePlane* plane, ReduceTeam* team,
               const std::atomic<int>* user_threads)
    : transport_(transport),
      grid_(grid),
      clocks_(clocks),
      options_(options),
      calibration_(calibration),
      coordinator_(transport, grid_, clocks.time_outs, coordinator_options(options), user_threads),
      lane_(plane != nullptr ? std::make_optional<DeviceLane>(transport, grid_, *plane)
                             : std::nullopt),
      executor_(transport, lane_ ? &*lane_ : nullptr, team),
      buckets_(executor_, grid_, limits.arena_bytes, limits.flags_per_peer),
      context_{.buckets = buckets_,
               .executor = executor_,
               .transport = transport_,
               .grid = grid_,
               .lane = lane_ ? &*lane_ : nullptr,
               .options = options_,
               .costs = calibration_.costs},
      votes_(coordinator_, context_, clocks.steps) {}

void Engine::submit(std::shared_ptr<Operation> operation) { enqueue(std::move(operation)); }
void Engine::submit(std::shared_ptr<GradientGroup> group) { enqueue(std::move(group)); }
void Engine::submit(GradientGroup& group, std::size_t bucket) {
  enqueue(ReadyBucket{&group, bucket});
}

void Engine::abort(Error error) { enqueue(std::move(error)); }

void Engine::enqueue(Submission submission) {
  if (!queue_.push(submission)) refuse(submission);
}

bool Engine::poll() noexcept {
  if (ended()) return false;
  try {
    return move();
  } catch (...) {
    fail_with_exception(activity_.verb);
    return true;
  }
}

void Engine::fail_with_exception(std::string_view verb) noexcept {
  if (activity_.verb != verb) activity_ = {.verb = verb};
  const Error error = caught_error(transport_.rank(), activity_);
  if (failure_) return end();  // The first error is the one that counts, and peers have it.
  succeeds([&] { coordinator_.fail(error); });
  fail_all(coordinator_.failure() ? *coordinator_.failure() : error);
}

bool Engine::move() {
  // What was just submitted leaves before the transport is polled: at a network that is a system
  // call.
  activity_ = {.verb = "mark"};
  bool moved = absorb() && !failure_ && run();
  activity_ = {.verb = "agree"};
  moved |= transport_.poll();
  if (failure_) return linger();
  moved |= coordinator_.poll();
  if (coordinator_.is_check_due(executor_.busy())) {
    awaited_peers_.clear();
    executor_.append_awaited_peers(awaited_peers_);
    coordinator_.check_peers(awaited_peers_);
  }
  for (const Frame& decision : coordinator_.take_decisions()) apply(decision);
  if (failure_) return true;
  for (const Agreed& agreed : coordinator_.take_agreed()) {
    start(agreed.bucket);
    moved = true;
  }
  moved |= run();
  if (coordinator_.failure() && !failure_) fail_all(*coordinator_.failure());
  return moved;
}

/// Moves what has started on, to its end if it can.
bool Engine::run() {
  activity_ = {.verb = "run"};
  const bool moved = executor_.poll();
  if (const auto error = executor_.device_failure()) {
    fail_device(*error);
  } else {
    for (BucketId id : executor_.take_enqueued()) {
      buckets_[id].owner->bucket_enqueued(buckets_[id].index);
    }
    for (BucketId id : executor_.take_finished()) finish(id);
  }
  return moved;
}

bool Engine::device_busy() const {
  return lane_ && (executor_.device_busy() || (failure_ && !ended()));
}

bool Engine::idle() const {
  return ended() || (!failure_ && !coordinator_.waiting() && !executor_.busy() && queue_.empty());
}

std::string Engine::describe_wait() const {
  return coordinator_.describe_wait() + "; " + executor_.describe_wait();
}

bool Engine::absorb() {
  queue_.drain(drained_);
  for (const Submission& submission : drained_) {
    if (failure_) {
      refuse(submission);
    } else {
      std::visit([this](const auto& item) { take(item); }, submission);
    }
  }
  const bool any = !drained_.empty();
  drained_.clear();
  return any;
}

void Engine::refuse(const Submission& submission) noexcept {
  if (const auto* operation = std::get_if<std::shared_ptr<Operation>>(&submission)) {
    (*operation)->ticket->fail(*failure_);
  } else if (const auto* group = std::get_if<std::shared_ptr<GradientGroup>>(&submission)) {
    (*group)->bucket_failed(*failure_);
  }
  // The group of a ready bucket has the error already, and whoever aborts has what it wanted.
}

void Engine::take(const std::shared_ptr<Operation>& operation) {
  OperationTopic& topic = topic_of(*operation);
  topic.push(operation);
  advance(topic);
}

void Engine::take(const std::shared_ptr<GradientGroup>& group) {
  if (const auto former = groups_.find(group->name());
      former != groups_.end() && former->second->in_flight()) {
    group->bucket_failed(
        {.code = ErrorCode::kUsage,
         .bucket = group->name(),
         .what = "the set of this name is in the middle of an iteration; call wait() first"});
    return;
  }
  const bool is_proposed = std::ranges::any_of(
      proposed_groups_, [&](const auto& item) { return item.second->name() == group->name(); });
  if (is_proposed) {
    group->bucket_failed({.code = ErrorCode::kUsage,
                          .bucket = group->name(),
                          .what = "the registration of a set of this name is not decided yet"});
    return;
  }
  const std::string text = group->describe();
  const Topic topic = coordinator_.propose("gradients " + group->name(), hash(text), text, *group);
  proposed_groups_.emplace(topic, group);
}

void Engine::take(const ReadyBucket& ready) {
  if (!ready.group->failed()) arrive(ready.group->id_of(ready.bucket));
}

OperationTopic& Engine::topic_of(const Operation& operation) {
  return operation.kind == OperationKind::kClose ? close_ : operations_[operation.name];
}

void Engine::advance(OperationTopic& topic) {
  switch (topic.need()) {
    case OperationTopic::Need::kNothing:
      return;
    case OperationTopic::Need::kArrival:
      topic.arrived();
      if (topic.head().buffer.memory == MemoryKind::kDevice) {
        executor_.set_input(*topic.bucket(), 0, topic.head().ready.get());
      }
      arrive(*topic.bucket());
      return;
    case OperationTopic::Need::kProposal: {
      const std::string text = topic.head().signature();
      topic.proposed(
          coordinator_.propose(operation_topic_name(topic.head()), hash(text), text, topic));
      proposed_operations_.emplace(*topic.proposal(), &topic);
      return;
    }
  }
}

void Engine::arrive(BucketId id) {
  BucketTable::Bucket& bucket = buckets_[id];
  if (bucket.running) {
    // A stream waits for this iteration, so the caller is one ahead of it.
    bucket.is_ready_again = true;
    return;
  }
  const Subject subject{.text = bucket.text, .waited = *bucket.owner, .name = bucket.name};
  if (bucket.is_eager) {
    coordinator_.begin(id, bucket.iteration, subject);
    start(id);
  } else {
    coordinator_.arrive(id, bucket.iteration, subject);
  }
}

void Engine::start(BucketId id) {
  BucketTable::Bucket& bucket = buckets_[id];
  activity_ = {.verb = "start", .bucket = first_line(bucket.text)};
  bucket.running = true;
  bucket.owner->bucket_started(bucket.index);
  executor_.start(id, bucket.iteration);
}

/// Peers may have started what this rank has not, and the reverse: all forget it.
void Engine::abandon(BucketId id) {
  BucketTable::Bucket& bucket = buckets_[id];
  if (!bucket.is_eager || !bucket.running) return;
  bucket.running = false;
  executor_.abandon(id);
  coordinator_.abandon(id);
}

void Engine::apply(const Frame& decision) {
  if (decision.kind == FrameKind::kAccept) {
    accept(decision);
  } else {
    for (const Topic& topic : decision.topics) reject(topic, decision.error);
  }
}

void Engine::accept(const Frame& decision) {
  const Topic& accepted = decision.topic;
  if (const auto it = proposed_operations_.find(accepted); it != proposed_operations_.end()) {
    OperationTopic& topic = *it->second;
    proposed_operations_.erase(it);
    activity_ = {.verb = "plan", .bucket = topic.head().name};
    try {
      plan(topic);
    } catch (const KoloError& e) {
      if (!fails_alike(e.error())) throw;
      topic.rejected(e.error());
    }
    if (failure_) return;
    activity_ = {.verb = "agree"};
    advance(topic);
    vote_on_oldest();
  } else if (retirement_ && retirement_->vote == accepted) {
    retire(decision);
  } else if (const auto found = proposed_groups_.find(accepted); found != proposed_groups_.end()) {
    const std::shared_ptr<GradientGroup> group = found->second;
    activity_ = {.verb = "plan", .bucket = group->name()};
    try {
      plan(*group);
      groups_[group->name()] = group;
      votes_.begin(*group);
    } catch (const KoloError& e) {
      if (!fails_alike(e.error())) throw;
      group->bucket_failed(e.error());
    }
    proposed_groups_.erase(found);
  } else {
    votes_.accept(decision);
  }
}

void Engine::plan(OperationTopic& topic) {
  const Operation& head = topic.head();
  if (head.kind == OperationKind::kClose) {
    topic.accepted(std::nullopt, nullptr);
    topic.complete_head();
    fail_all({.code = ErrorCode::kShutdown, .what = "the runtime is closed"});
    return;
  }
  // All ranks have finished every use of the former signature, or forgotten one that was rejected,
  // before they propose a new one.
  std::erase(by_age_, head.name);
  if (const auto former = topic.take_bucket()) buckets_.remove(*former);
  PlannedOperation planned = plan_operation(head, context_);
  const BucketId id = buckets_.add(std::move(planned.bucket), topic, 0, head.signature());
  buckets_[id].name = name_key(operation_topic_name(head));
  by_age_.push_back(head.name);
  topic.accepted(id, std::move(planned.packer));
}

/// Programs may make up names for ever. When there is little room left, all ranks vote at an
/// agreement on a new name whether the oldest one goes: it does if it is idle everywhere after
/// equally many uses. Until that is decided, which takes one trip, it is not begun anywhere.
void Engine::vote_on_oldest() {
  if (retirement_ || by_age_.size() < 2 || !buckets_.is_crowded()) return;
  const std::string& name = by_age_.front();
  OperationTopic& oldest = operations_.at(name);
  const BucketTable::Bucket& bucket = buckets_[*oldest.bucket()];
  const std::uint64_t uses = bucket.rejected ? *bucket.rejected + 1 : bucket.iteration;
  const std::uint64_t word =
      oldest.is_idle() ? uses : kBusyBit | static_cast<std::uint64_t>(transport_.rank());
  oldest.hold(true);
  const Topic vote =
      coordinator_.vote(kRetirement, word, "whether '" + name + "' is still used", nobody_);
  retirement_ = {vote, name};
}

void Engine::retire(const Frame& decision) {
  const std::string name = std::move(retirement_->name);
  retirement_.reset();
  OperationTopic& topic = operations_.at(name);
  topic.hold(false);
  std::erase(by_age_, name);
  if (decision.least != decision.greatest || (decision.least & kBusyBit) != 0) {
    if (topic.bucket()) by_age_.push_back(name);
  } else {
    buckets_.remove(*topic.take_bucket());
    if (topic.is_idle()) {
      operations_.erase(name);
    } else {
      advance(topic);
    }
    return vote_on_oldest();  // Several names may have been agreed on meanwhile.
  }
  advance(topic);
}

void Engine::plan(GradientGroup& group) {
  if (const auto former = groups_.find(group.name()); former != groups_.end()) {
    if (former->second->failed()) {
      // Other buckets than the rejected one may still be running: all stay, on all ranks alike.
      failed_groups_.push_back(std::move(former->second));
    } else {
      former->second->bucket_failed({.code = ErrorCode::kUsage,
                                     .bucket = group.name(),
                                     .what = "this gradient set was replaced by a later "
                                             "registration of its name; use the new one"});
      remove_gradients(*former->second, buckets_);
    }
    groups_.erase(former);
  }
  plan_gradients(group, context_);
}

void Engine::reject(const Topic& rejected, const Error& error) {
  if (const auto it = proposed_operations_.find(rejected); it != proposed_operations_.end()) {
    OperationTopic& topic = *it->second;
    proposed_operations_.erase(it);
    topic.rejected(error);
    advance(topic);
  } else if (const auto found = proposed_groups_.find(rejected); found != proposed_groups_.end()) {
    found->second->bucket_failed(error);
    proposed_groups_.erase(found);
  } else if (votes_.reject(rejected, error)) {
    return;
  } else if (retirement_ && retirement_->vote == rejected) {
    coordinator_.fail(error);  // Not by this program: votes are answered at once.
  } else if (is_bucket_key(rejected.key)) {
    const BucketTable::Bucket& bucket = buckets_[bucket_of(rejected.key)];
    const bool is_past = bucket.iteration > rejected.round;
    if (is_past || (bucket.running && !bucket.is_eager)) {
      // A thread submitted it after its rank was judged stuck. Ranks may differ about whether it
      // started (an eager one: whether it is over), so no rank can go on.
      coordinator_.fail(error);
      return;
    }
    buckets_[bucket_of(rejected.key)].rejected = rejected.round;
    fail_owner(bucket_of(rejected.key), error);
  }
}

void Engine::fail_owner(BucketId id, const Error& error) {
  BucketOwner& owner = *buckets_[id].owner;
  if (const auto* group = dynamic_cast<GradientGroup*>(&owner)) {
    for (BucketId bucket : group->buckets()) abandon(bucket);
    for (BucketId bucket : group->compressed().ids()) abandon(bucket);
  } else {
    abandon(id);
  }
  owner.bucket_failed(error);
  if (OperationTopic* topic = owner.as_operation()) advance(*topic);
}

void Engine::finish(BucketId id) {
  BucketTable::Bucket& bucket = buckets_[id];
  activity_ = {.verb = "complete", .bucket = first_line(bucket.text)};
  ++bucket.iteration;
  bucket.running = false;
  if (bucket.is_eager) coordinator_.end(id);
  network_bytes_.fetch_add(executor_.network_bytes(id), std::memory_order_relaxed);
  bucket.owner->bucket_finished(bucket.index);
  if (OperationTopic* topic = bucket.owner->as_operation()) {
    advance(*topic);
  } else if (GradientGroup* group = bucket.owner->as_gradients();
             group != nullptr && group->take_turn_to_vote() && !group->failed()) {
    votes_.cast(groups_.at(group->name()));
  }
  if (std::exchange(bucket.is_ready_again, false)) arrive(id);
}

void Engine::fail_device(const Error& error) {
  const TimePoint now = clocks_.time_outs.now();
  if (!device_failed_at_) device_failed_at_ = now;
  const bool is_effect = error.code == ErrorCode::kPeerLost;
  if (!is_effect || now - *device_failed_at_ >= kCauseWithin) coordinator_.fail(error);
}

/// Every part of it is done, whatever fails in another.
void Engine::fail_all(const Error& error) noexcept {
  failure_ = copied(error);
  const bool is_orderly = error.code == ErrorCode::kShutdown;
  succeeds([&] { executor_.cancel(); });
  if (lane_ && !is_orderly) {
    // So that peers hear of it before the device keeps this thread.
    succeeds([&] { transport_.poll(); });
    succeeds([&] { lane_->abort(); });
  }
  proposed_operations_.clear();
  retirement_.reset();
  votes_.clear();
  for (auto& [name, topic] : operations_) topic.fail_all(error);
  close_.fail_all(error);
  for (auto& [topic, group] : proposed_groups_) group->bucket_failed(error);
  for (auto& [name, group] : groups_) group->bucket_failed(error);
  for (const Submission& submission : drained_) refuse(submission);  // that `absorb` left over
  linger_until_ = clocks_.time_outs.now() + (is_orderly ? kFinalizeWithin : kLinger);
  if (!succeeds([&] { linger(); })) end();
}

/// The end itself is a move: a thread that parked after it would never wake.
bool Engine::linger() {
  const bool is_orderly = failure_->code == ErrorCode::kShutdown;
  const bool is_over = is_orderly && (!lane_ || lane_->finalize());
  const bool is_late = clocks_.time_outs.now() >= linger_until_;
  if (is_late && !is_over && is_orderly) lane_->abort();  // Otherwise it was aborted at once.
  if (is_over || is_late) end();
  return ended();
}

void Engine::end() noexcept {
  const bool is_orderly = failure_->code == ErrorCode::kShutdown;
  if (!succeeds([&] { transport_.shutdown(is_orderly); })) {
    succeeds([&] { transport_.shutdown(false); });
  }
  queue_.close();
  absorb();
  ended_.store(true, std::memory_order_release);
}

}  // namespace kolo
