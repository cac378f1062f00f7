#include "runtime/engine/engines.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "comm/base/check.h"

namespace kolo {
namespace {

/// Number of flags of each group; each name takes a few, also for its staging memory.
constexpr std::uint32_t kGroupFlags = 1U << 12;

ProcessGrid subgrid(const ProcessGrid& grid, const std::vector<int>& ranks) {
  std::vector<std::string> nodes;
  for (int rank : ranks) nodes.push_back(grid.node_id(grid.node(rank)));
  return ProcessGrid(nodes);
}

/// Returns the job's calibration, with the rates of links in the order of the group's nodes.
Calibration calibration_of_group(const GroupEngine::Shared& job, const std::vector<int>& ranks,
                                 const ProcessGrid& group) {
  Calibration calibration = job.calibration;
  std::vector<double>& rates = calibration.costs.node_rates;
  const auto nodes = static_cast<std::size_t>(job.grid.num_nodes());
  const std::vector<double> by_node = std::exchange(rates, {});
  if (by_node.size() != nodes) return calibration;
  for (int node = 0; node < group.num_nodes(); ++node) {
    const int rank = ranks[static_cast<std::size_t>(group.leader(node))];
    rates.push_back(by_node[static_cast<std::size_t>(job.grid.node(rank))]);
  }
  return calibration;
}

GroupCreator::Patience patience_of(const Options& options) {
  return {.warn_after = saturated(options.mismatch_after), .fail_after = stall_limit(options)};
}

}  // namespace

// --- GroupEngine --------------------------------------------------------------------------------

GroupEngine::GroupEngine(const Shared& shared, const Options& options, GroupMembers members,
                         const TransportLimits& limits, std::unique_ptr<ControlInbox> inbox,
                         std::string text)
    : members_(std::move(members)),
      text_(std::move(text)),
      grid_(subgrid(shared.grid, members_.ranks)),
      inbox_(std::move(inbox)),
      transport_(shared.transport, members_, limits, *inbox_),
      engine_(transport_, grid_, shared.clocks, options,
              calibration_of_group(shared, members_.ranks, grid_), limits, nullptr, shared.team,
              shared.user_threads,
              {.group = text_,
               .pulse = shared.pulse,
               .device = shared.device,
               .connector = shared.connector}) {}

ControlDemux::Number GroupEngine::inbox_at(int rank_of_job) const {
  const auto member = std::ranges::find(members_.ranks, rank_of_job);
  ensure(member != members_.ranks.end(), "a group of ranks that are not all in its parent");
  return members_.places[static_cast<std::size_t>(member - members_.ranks.begin())].inbox;
}

std::string GroupCreation::settings() const {
  std::string text = fmt::format("arena_bytes {}", arena_bytes);
  if (operation_timeout.count() > 0) {
    text += fmt::format(", operation_timeout {} ms", operation_timeout.count());
  }
  return text;
}

// --- Engines ------------------------------------------------------------------------------------

Engines::Engines(Engine& job, ControlDemux& control_demux, const GroupEngine::Shared& shared,
                 LocalArena& arena)
    : job_(job),
      demux_(control_demux),
      shared_(shared),
      creator_(shared.transport.rank(), patience_of(shared.options)),
      arena_(arena) {
  ensure(demux_.open(creators_inbox_) == ControlDemux::kCreators, "another inbox came first");
  job_.on_pause([this] { pause(); });
  job_.close_after([this] { return close_groups(); });
  job_.abort_with([this] { return abort_groups(); });
}

Engines::~Engines() {
  job_.abort_with({});
  job_.close_after({});
  job_.on_pause({});
}

/// Closes all groups of this rank along with the job. Returns whether this rank's operations in the
/// groups are over; other members need not have closed them.
bool Engines::close_groups() {
  bool are_over = true;
  for (Holding& each : groups_) {
    Engine& engine = each.group->engine();
    if (!std::exchange(each.closes_with_job, true)) {
      engine.submit(std::make_shared<Operation>(Operation{.kind = OperationKind::kClose}));
      are_over = false;
    } else if (engine.is_closing()) {  // The other members may have refused the end.
      are_over &= engine.has_ended_own();
    }
  }
  return are_over;
}

/// Begins or continues to abort the device collectives of all groups. Returns whether all are over.
bool Engines::abort_groups() {
  bool are_over = true;
  for (const Holding& each : groups_) are_over &= each.group->engine().abort_device();
  return are_over;
}

/// Called while an engine allocates memory, which takes long: tells the peers of all engines that
/// this rank is alive.
void Engines::pause() {
  if (shared_.pulse != nullptr) shared_.pulse->beat(EngineVerb::kPlan);
  shared_.transport.poll();
  job_.answer_pings();
  for (const Holding& each : groups_) each.group->engine().answer_pings();
}

void Engines::submit(std::shared_ptr<GroupCreation> creation) {
  const std::shared_ptr<GroupCreation> refused = creation;
  if (!submitted_.push(creation)) refused->ticket.fail(*job_.failure());
}

TransportLimits Engines::limits_of(const GroupCreation& creation) {
  return {.arena_bytes = creation.arena_bytes,
          .flags_per_peer = kGroupFlags,
          .counters = 2 * kGroupBuckets,
          .buckets = kGroupBuckets};
}

GroupLayout Engines::layout_of(const GroupCreation& creation) const {
  const auto local = std::ranges::count_if(
      creation.ranks, [&](int rank) { return shared_.transport.is_mapped(rank); });
  return {limits_of(creation), static_cast<std::size_t>(local)};
}

bool Engines::has_submissions() const {
  return job_.has_submissions() || !submitted_.empty() ||
         std::ranges::any_of(
             groups_, [](const Holding& each) { return each.group->engine().has_submissions(); });
}

bool Engines::idle() const {
  return job_.idle() && submitted_.empty() && !creator_.is_waiting() &&
         std::ranges::all_of(groups_,
                             [](const Holding& each) { return each.group->engine().idle(); }) &&
         std::ranges::all_of(ended_,
                             [](const Holding& each) { return each.group->engine().has_let_go(); });
}

bool Engines::device_busy() const {
  return job_.device_busy() || std::ranges::any_of(groups_, [](const Holding& each) {
           return each.group->engine().device_busy();
         });
}

bool Engines::poll_groups() noexcept {
  if (job_.failure()) {
    end_all(*job_.failure());
    return false;
  }
  bool moved = false;
  if (shared_.pulse != nullptr) shared_.pulse->beat(EngineVerb::kCreate);
  try {
    moved = create();
  } catch (...) {
    fail_with_exception(EngineVerb::kCreate);
    return true;
  }
  for (const Holding& each : groups_) moved |= each.group->poll();
  std::erase_if(groups_, [&](Holding& each) {
    Engine& engine = each.group->engine();
    const bool is_told = engine.ended() || engine.awaits_abort();
    if (is_told && !std::exchange(each.has_told_loss, true)) report_loss(*each.group);
    if (!engine.ended()) return false;
    demux_.close(each.place.inbox);
    ended_.push_back(std::move(each));
    return true;
  });
  std::erase_if(ended_, [&](const Holding& each) {
    Engine& engine = each.group->engine();
    if (!engine.let_go() || engine.failure()->code != ErrorCode::kShutdown) return false;
    give_back(each.place, engine.has_strays());
    return true;
  });
  return moved;
}

/// Ends the job if the failed group has lost a member, because every group has lost that rank.
void Engines::report_loss(GroupEngine& ended) {
  const Error& failure = *ended.engine().failure();
  const bool names_member = failure.group == ended.text() && failure.peer >= 0;
  if (failure.code != ErrorCode::kPeerLost || !names_member) return;
  const int lost = ended.ranks()[static_cast<std::size_t>(failure.peer)];
  job_.abort({.code = ErrorCode::kPeerLost,
              .rank = shared_.transport.rank(),
              .peer = lost,
              .verb = failure.verb,
              .what = fmt::format("rank {} is lost: {}", lost, failure.to_string()),
              .logged = failure.logged});
}

/// Advances the creation of groups.
bool Engines::create() {
  submitted_.drain(drained_);
  bool moved = !drained_.empty() || !creators_inbox_.empty();
  for (const auto& creation : drained_) propose(creation);
  drained_.clear();
  while (!creators_inbox_.empty()) {
    const ControlFrame frame = std::move(creators_inbox_.front());
    creators_inbox_.pop_front();
    creator_.receive(frame.peer, frame.bytes);
  }
  if (creator_.is_waiting()) {
    creator_.tick(shared_.clocks.time_outs.now(),
                  [this](ControlDemux::Number group) { return absent_in(group); });
  }
  for (const GroupCreator::Outgoing& outgoing : creator_.take_outgoing()) {
    ControlDemux::address(ControlDemux::kCreators, outgoing.bytes, framed_);
    shared_.transport.send_control(outgoing.peer, framed_);
  }
  for (GroupCreator::Outcome& outcome : creator_.take_outcomes()) {
    decide(std::move(outcome));
    moved = true;
  }
  return moved;
}

/// Returns the joined and closed ranks of `group`, as ranks in the job; none if it has ended here.
GroupCreator::Absent Engines::absent_in(ControlDemux::Number group) const {
  if (group == ControlDemux::kCreators) return {job_.joined(), job_.closed()};
  const auto found =
      std::ranges::find(groups_, group, [](const Holding& each) { return each.place.inbox; });
  if (found == groups_.end()) return {};
  const auto ranks_of_job = [&](const std::set<int>& members) {
    std::set<int> ranks;
    for (const int member : members) {
      ranks.insert(found->group->ranks()[static_cast<std::size_t>(member)]);
    }
    return ranks;
  };
  const Engine& engine = found->group->engine();
  return {ranks_of_job(engine.joined()), ranks_of_job(engine.closed())};
}

void Engines::propose(const std::shared_ptr<GroupCreation>& creation) {
  GroupProposal proposal{.name = creation->name,
                         .ranks = creation->ranks,
                         .settings = creation->settings(),
                         .place = {}};
  if (creation->parent) {
    proposal.parent = creation->parent->inbox_at(*std::ranges::min_element(creation->ranks));
  }
  Proposed proposed{.creation = creation, .place = {}, .inbox = std::make_unique<ControlInbox>()};
  try {
    proposed.place = take_place(*creation);
  } catch (const KoloError& e) {
    proposal.obstacle = e.error();
    proposal.obstacle->rank = shared_.transport.rank();
  }
  if (!proposal.obstacle) proposed.place->inbox = demux_.open(*proposed.inbox);
  proposal.place = proposed.place.value_or(GroupPlace{});
  const std::uint64_t id = creator_.propose(std::move(proposal));
  proposed_[id] = std::move(proposed);
}

/// Allocates the resources of a place except the inbox. Errors: KoloError(kResources).
GroupPlace Engines::take_place(const GroupCreation& creation) {
  if (free_buckets_.empty() && next_buckets_ == kMostGroups) {
    throw KoloError(
        {.code = ErrorCode::kResources,
         .what = fmt::format("a rank can be in {} groups at a time, less one for each group that "
                             "failed or closed with messages unreceived; release some",
                             kMostGroups)});
  }
  const GroupLayout layout = layout_of(creation);
  GroupPlace place{.arena_offset = arena_.allocate(layout.total_bytes)};
  try {
    GroupTransport::clear(shared_.transport, place.arena_offset, layout);
  } catch (...) {
    arena_.release(place.arena_offset);
    throw;
  }
  if (free_buckets_.empty()) free_buckets_.insert(next_buckets_++);
  place.first_bucket = kMaxBuckets + *free_buckets_.begin() * kGroupBuckets;
  free_buckets_.erase(free_buckets_.begin());
  return place;
}

void Engines::decide(GroupCreator::Outcome outcome) {
  // It stays there until it is decided, so that after an exception `end_all` answers its caller.
  const auto found = proposed_.find(outcome.id);
  Proposed& proposed = found->second;
  GroupCreation& creation = *proposed.creation;
  if (const Error* error = std::get_if<Error>(&outcome.result)) {
    if (proposed.place) {
      demux_.close(proposed.place->inbox);
      give_back(*proposed.place, false);
    }
    creation.ticket.fail(*error);
    proposed_.erase(found);
    return;
  }
  const GroupProposal named{
      .name = creation.name, .ranks = creation.ranks, .settings = {}, .place = {}};
  Options options = shared_.options;
  if (creation.operation_timeout.count() > 0) {
    options.operation_timeout = creation.operation_timeout;
  }
  creation.group = std::make_shared<GroupEngine>(
      shared_, options,
      GroupMembers{.ranks = creation.ranks,
                   .places = std::get<std::vector<GroupPlace>>(std::move(outcome.result))},
      limits_of(creation), std::move(proposed.inbox), named.text());
  creation.group->engine().on_pause([this] { pause(); });
  groups_.push_back({.place = *proposed.place, .group = creation.group});
  creation.ticket.complete();
  proposed_.erase(found);
}

void Engines::give_back(const GroupPlace& place, bool has_strays) {
  arena_.release(place.arena_offset);
  // A later group with the same tags would receive the strays.
  if (!has_strays) free_buckets_.insert((place.first_bucket - kMaxBuckets) / kGroupBuckets);
}

/// Ends all groups, because the job is over. The job's engine shuts down the transport, and with it
/// all messages of groups in flight.
void Engines::end_all(const Error& error) noexcept {
  submitted_.close();
  for (const auto& creation : drained_) creation->ticket.fail(error);  // left over by `create`
  submitted_.drain(drained_);
  for (const auto& creation : drained_) creation->ticket.fail(error);
  drained_.clear();
  for (auto& [id, proposed] : proposed_) {
    if (proposed.place) demux_.close(proposed.place->inbox);
    proposed.creation->ticket.fail(error);
  }
  proposed_.clear();
  for (const Holding& each : groups_) {
    each.group->engine().fail_with_job(error);
    if (job_.ended()) {
      each.group->engine().end_with_job();
    } else if (error.code == ErrorCode::kShutdown) {
      each.group->engine().poll();
    }
  }
  if (!job_.ended()) return;
  for (const Holding& each : groups_) each.group->engine().stop();
  for (const Holding& each : ended_) each.group->engine().stop();
}

}  // namespace kolo
