#include "runtime/calls/operations.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <xxhash.h>

#include "runtime/calls/operation_plan.h"
#include "runtime/calls/row_sums/row_reduction.h"

namespace kolo {
namespace {

/// Adds a prefix, so that names of users, of the library and of gradient sets differ.
std::string queue_name(const std::string& name, NameSpace space) {
  return (space == NameSpace::kUser ? "operation " : "runtime ") + name;
}

bool uses_device(const OperationShape& shape) {
  const bool has_rows_there =
      shape.rows && shape.rows->tables.front().memory == MemoryKind::kDevice;
  return has_rows_there || shape.memory == MemoryKind::kDevice;
}

std::string queue_name(const Operation& operation) {
  return queue_name(operation.name, operation.space);
}

/// Returns the hash by which pending operations are compared: of the position in a group that keeps
/// one order, of the name otherwise.
std::uint64_t sequence_hash(const Operation& operation) {
  if (operation.place == 0) return name_hash(queue_name(operation));
  constexpr std::uint64_t kSeed = 1;  // distinct from the hashes of names
  return XXH3_64bits_withSeed(&operation.place, sizeof operation.place, kSeed);
}

}  // namespace

void Operations::submit(const std::shared_ptr<Operation>& operation) {
  operation->place = keeps_order() && operation->space != NameSpace::kStep ? ++places_ : 0;
  NamedOpQueue& queue = queue_of(*operation);
  queue.push(operation);
  advance(queue);
}

NamedOpQueue& Operations::queue_of(const Operation& operation) {
  return queues(operation.space).try_emplace(operation.name, *this).first->second;
}

void Operations::advance(NamedOpQueue& queue) {
  switch (queue.need()) {
    case NamedOpQueue::Need::kNothing:
      return;
    case NamedOpQueue::Need::kArrival:
      queue.arrived();
      if (queue.head().place != 0) {
        context_.buckets.set_sequence(*queue.bucket(), sequence_hash(queue.head()));
      }
      if (queue.has_device_bucket()) {
        context_.executor.set_input(*queue.bucket(), 0, queue.head().ready.get());
      }
      runner_.mark_ready(*queue.bucket());
      return;
    case NamedOpQueue::Need::kProposal: {
      const std::string text = queue.head().signature();
      const std::uint64_t fingerprint = XXH3_64bits(text.data(), text.size());
      queue.proposed(coordinator_.propose_with_hint(
          queue_name(queue.head()), fingerprint,
          is_in_arena(queue.head(), context_.transport.shared_memory()), text, queue,
          sequence_hash(queue.head())));
      proposed_.emplace(*queue.proposal(), &queue);
      return;
    }
  }
}

void Operations::enqueued(const NamedOpQueue& queue) {
  queue.head().ticket->enqueued(context_.copies->device(),
                                context_.executor.finished_event(*queue.bucket()));
}

bool Operations::accept(const Frame& decision) {
  if (const auto retirement = retirements_.extract(decision.key); !retirement.empty()) {
    retire(retirement.mapped().name, decision);
    return true;
  }
  const auto proposal = proposed_.extract(decision.key);
  if (proposal.empty()) return false;
  NamedOpQueue& queue = *proposal.mapped();
  activity_.begin(EngineVerb::kPlan, queue.head().name);
  try {
    plan(queue, Coordinator::all_hint(decision));
  } catch (const KoloError& e) {
    if (!fails_alike(e.error())) throw;
    queue.rejected(coordinator_.in_group(e.error()));
  }
  activity_.begin(EngineVerb::kAgree);
  advance(queue);
  vote_on_oldest();
  return true;
}

bool Operations::reject(const ProposalKey& rejected, const Error& error) {
  if (retirements_.contains(rejected)) {
    coordinator_.fail(error);  // Peers of this version never reject a vote.
    return true;
  }
  if (is_bucket_hash(rejected.hash)) return false;
  const auto proposal = proposed_.extract(rejected);
  NamedOpQueue* const queue = proposal.empty() ? find(rejected.hash) : proposal.mapped();
  if (queue == nullptr) return false;
  if (!Coordinator::is_by_closed(error)) {
    queue->give_up_bucket();
    if (const auto bucket = queue->bucket()) runner_.give_up(*bucket, error);
  }
  if (proposal.empty()) return true;
  queue->rejected(error);
  advance(*queue);
  return true;
}

NamedOpQueue* Operations::find(std::uint64_t hash) {
  for (const NameSpace space : {NameSpace::kUser, NameSpace::kRuntime}) {
    for (auto& [name, queue] : queues(space)) {
      if (name_hash(queue_name(name, space)) == hash) return &queue;
    }
  }
  return nullptr;
}

void Operations::plan(NamedOpQueue& queue, bool in_arenas) {
  const Operation& head = queue.head();
  // No rank still uses the former bucket: before a rank proposes a new signature, it has finished
  // or abandoned all uses of the former one.
  BucketTable& buckets = context_.buckets;
  const Name name{.text = head.name, .space = head.space};
  std::erase(by_age_, name);
  if (const auto former = queue.take_bucket()) buckets.remove(*former);
  PlannedOperation planned = plan_operation(head, in_arenas, context_);
  const BucketId id = buckets.add(std::move(planned.bucket), queue, 0, head.signature());
  buckets.set_name(id, name_hash(queue_name(head)));
  buckets.set_sequence(id, sequence_hash(head));
  by_age_.push_back(name);
  queue.accepted(id, std::move(planned.tensors));
}

void Operations::fail_all(const Error& error) noexcept {
  proposed_.clear();
  retirements_.clear();
  for (auto& [name, queue] : queues_) queue.fail_all(error);
  for (auto& [name, queue] : own_) queue.fail_all(error);
}

// --- While this rank has joined ------------------------------------------------------------------

bool Operations::is_idle() const {
  const auto are_idle = [](const Queues& queues) {
    return std::ranges::all_of(queues, [](const auto& queue) { return queue.second.is_idle(); });
  };
  return are_idle(queues_) && are_idle(own_);
}

std::string_view Operations::stand_in(const OperationTerms& terms) {
  if (terms.space == NameSpace::kStep) return {};  // This rank's composite call submits it.
  const std::string_view obstacle = obstacle_to(terms.shape, context_.transport.rank());
  if (!obstacle.empty()) return obstacle;
  const bool is_on_device = uses_device(terms.shape);
  if (is_on_device && context_.copies == nullptr) return "it has no device";
  if (terms.shape.rows) {
    begin_call_(without_rows(terms));
    return {};
  }
  if (is_on_device && !stand_in_memory_) stand_in_memory_.emplace(*context_.copies);
  submit(make_stand_in(terms, context_.grid.world_size(),
                       stand_in_memory_ ? &*stand_in_memory_ : nullptr));
  return {};
}

/// Makes the row-sparse all-reduce of a rank without rows.
std::shared_ptr<CompositeOp> Operations::without_rows(const OperationTerms& terms) const {
  const PlanInputs inputs{.rank = context_.transport.rank(),
                          .grid = context_.grid,
                          .options = context_.options,
                          .costs = context_.costs};
  const RowCall& call = *terms.shape.rows;
  std::vector<TableRows> tables;
  for (const RowTable& table : call.tables) tables.push_back({.table = table});
  std::vector<RowSums> memory(tables.size());
  Device* const device = context_.copies != nullptr ? &context_.copies->device() : nullptr;
  return std::make_shared<RowReduction>(inputs, terms.name, tables, call.options, memory,
                                        RowDevice{.device = device});
}

// --- Retirement of names -------------------------------------------------------------------------

void Operations::vote_on_oldest() {
  if (!context_.buckets.is_crowded()) return;
  const auto is_voted_on = [this](const Name& name) {
    return std::ranges::any_of(retirements_,
                               [&](const auto& vote) { return vote.second.name == name; });
  };
  const auto oldest_name = std::ranges::find_if_not(by_age_, is_voted_on);
  if (oldest_name == by_age_.end() || *oldest_name == by_age_.back()) return;
  const Name name = *oldest_name;
  NamedOpQueue& oldest = queues(name.space).at(name.text);
  const BucketTable::State& state = context_.buckets[*oldest.bucket()].state;
  const std::uint64_t uses = state.rejected ? *state.rejected + 1 : state.iteration;
  // Vote numbers are reused, so that the coordinator keeps few names.
  std::size_t number = 0;
  while (std::ranges::any_of(retirements_,
                             [&](const auto& vote) { return vote.second.number == number; })) {
    ++number;
  }
  oldest.hold(true);
  const ProposalKey vote = coordinator_.vote_on_end(
      fmt::format("retirement {}", number), queue_name(name.text, name.space),
      oldest.is_idle() ? std::optional(uses) : std::nullopt,
      "whether '" + name.text + "' is still used", nobody_);
  retirements_.emplace(vote, Retirement{number, name});
}

void Operations::retire(const Name& name, const Frame& decision) {
  NamedOpQueue& queue = queues(name.space).at(name.text);
  queue.hold(false);
  std::erase(by_age_, name);
  if (!Coordinator::ends(decision)) {
    if (queue.bucket()) by_age_.push_back(name);
  } else {
    context_.buckets.remove(*queue.take_bucket());
    if (queue.is_idle()) {
      queues(name.space).erase(name.text);
    } else {
      advance(queue);
    }
    return vote_on_oldest();  // Earlier votes may have retired fewer names than were added.
  }
  advance(queue);
}

// --- CompositeOps -------------------------------------------------------------------------------

void CompositeOps::submit(std::shared_ptr<CompositeOp> call) {
  under_way_.push_back({.call = std::move(call), .stage = {}});
  begin_stage(under_way_.back());
}

bool CompositeOps::poll() {
  bool moved = false;
  for (UnderWay& each : under_way_) {
    if (!is_due(each)) continue;
    go_on(each);
    moved = true;
  }
  std::erase_if(under_way_, [](const UnderWay& each) { return each.call == nullptr; });
  return moved;
}

void CompositeOps::fail_all(const Error& error) noexcept {
  for (const UnderWay& each : under_way_) {
    if (each.call) each.call->fail(error);
  }
  under_way_.clear();
}

bool CompositeOps::awaits_device() const {
  return std::ranges::any_of(under_way_,
                             [](const UnderWay& each) { return each.call && each.stage.empty(); });
}

/// Returns whether the last stage or, after all stages, the device work of a call is over.
bool CompositeOps::is_due(const UnderWay& each) {
  if (!each.call) return false;
  if (each.stage.empty()) return each.call->is_settled();
  return std::ranges::all_of(each.stage,
                             [](const auto& operation) { return operation->ticket->done(); });
}

/// Begins the next stage of a call or completes the call. An error of an operation, which all ranks
/// get, fails the call.
void CompositeOps::go_on(UnderWay& each) {
  if (each.stage.empty()) return std::exchange(each.call, nullptr)->complete();
  try {
    for (const auto& operation : each.stage) {
      operation->ticket->wait_at_most(std::chrono::milliseconds(0), nullptr);
    }
  } catch (const KoloError& e) {
    return std::exchange(each.call, nullptr)->fail(e.error());
  }
  begin_stage(each);
}

void CompositeOps::begin_stage(UnderWay& each) {
  each.stage = each.call->next();
  if (each.stage.empty()) {
    if (each.call->is_settled()) go_on(each);
    return;
  }
  // A thread that waits for the call counts once, not for each of its operations.
  each.stage.front()->ticket = std::make_shared<TicketState>(each.call);
  for (const auto& operation : each.stage) operations_.submit(operation);
}

}  // namespace kolo
