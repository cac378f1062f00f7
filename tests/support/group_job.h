#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/engine/engines.h"
#include "tests/support/device/host_connector.h"
#include "tests/support/device/host_device.h"
#include "tests/support/in_process_transport.h"
#include "tests/support/seeded_scheduler.h"
#include "topology/link_costs.h"

namespace kolo::test {

/// Runs the engines of a job and of its groups, like `EngineJob`. If `make_device` is given, it
/// makes the device of each rank, and groups connect their collectives through `connections`.
/// Otherwise ranks have no device. With `make_connector` the job has collectives on the device,
/// too.
class GroupJob {
 public:
  static constexpr std::size_t kJobArena = std::size_t{1} << 19;
  using MakeDevice = std::function<std::unique_ptr<Device>(int rank)>;
  using MakeConnector = std::function<std::unique_ptr<CommunicatorConnector>(Device& device)>;

  GroupJob(ProcessGrid grid, std::uint64_t seed, std::size_t groups_arena = std::size_t{4} << 20,
           Options options = {.arena_bytes = kJobArena}, const MakeDevice& make_device = {},
           HostConnections* connections = nullptr, const MakeConnector& make_connector = {})
      : options_(std::move(options)),
        hub_(std::move(grid), {.arena_bytes = kJobArena + groups_arena,
                               .flags_per_peer = kLimits.flags_per_peer,
                               .counters = kLimits.counters}) {
    std::vector<SeededScheduler::Pollable> pollables;
    for (int rank = 0; rank < world_size(); ++rank) {
      ranks_.push_back(std::make_unique<Rank>(*this, rank, groups_arena,
                                              make_device ? make_device(rank) : nullptr,
                                              connections, make_connector));
      pollables.push_back([this, rank, of = ranks_.back().get()] {
        if (of->is_frozen) return false;
        return poll_ ? poll_(rank, of->engines) : of->engines.poll();
      });
      if (auto* const device = dynamic_cast<SeededHostDevice*>(ranks_.back()->device.get())) {
        pollables.push_back([device] { return device->step(); });
      }
    }
    scheduler_ = std::make_unique<SeededScheduler>(seed, std::move(pollables));
  }
  /// Shuts the transports down, which ends operations in flight before the engines are destroyed.
  ~GroupJob() {
    for (const auto& rank : ranks_) rank->transport->shutdown(false);
  }
  GroupJob(const GroupJob&) = delete;
  GroupJob& operator=(const GroupJob&) = delete;

  int world_size() const { return hub_.grid().world_size(); }
  ManualClock& clock() { return clock_; }
  Engine& engine(int rank) { return at(rank).engine; }
  Device& device(int rank) { return *at(rank).device; }
  Engines& engines(int rank) { return at(rank).engines; }
  /// Returns the bytes of data that a rank has sent.
  std::uint64_t data_sent(int rank) {
    std::uint64_t bytes = 0;
    for (int peer = 0; peer < world_size(); ++peer) {
      bytes += at(rank).transport->traffic(peer).data_sent;
    }
    return bytes;
  }
  /// See `InProcessHub::complete_sends_on_receipt`.
  void complete_sends_on_receipt() { hub_.complete_sends_on_receipt(); }
  /// Sets a function that polls the engines of a rank.
  void poll_with(std::function<bool(int rank, Engines& engines)> poll) { poll_ = std::move(poll); }
  /// Stops polling the engines of a rank.
  void freeze(int rank) { at(rank).is_frozen = true; }

  /// Starts to create a group on one rank.
  std::shared_ptr<GroupCreation> create(int rank, const std::vector<int>& ranks,
                                        const std::string& name = "g",
                                        std::size_t arena_bytes = std::size_t{64} << 10) {
    auto creation = std::make_shared<GroupCreation>();
    creation->name = name;
    creation->ranks = ranks;
    creation->arena_bytes = arena_bytes;
    engines(rank).submit(creation);
    return creation;
  }

  /// Creates a group on all of its ranks. Returns the engines, indexed by rank in the group.
  std::vector<std::shared_ptr<GroupEngine>> create_all(const std::vector<int>& ranks,
                                                       const std::string& name = "g",
                                                       std::size_t arena_bytes = std::size_t{64}
                                                                                 << 10) {
    std::vector<std::shared_ptr<GroupCreation>> creations;
    for (int rank : ranks) creations.push_back(create(rank, ranks, name, arena_bytes));
    run_until([&] {
      return std::ranges::all_of(creations, [](const auto& each) { return each->ticket.done(); });
    });
    std::vector<std::shared_ptr<GroupEngine>> members;
    for (const auto& creation : creations) members.push_back(creation->group);
    return members;
  }

  static std::shared_ptr<Operation> submit(Engine& engine, Operation operation) {
    auto shared = std::make_shared<Operation>(std::move(operation));
    engine.submit(shared);
    return shared;
  }

  void run_until(const std::function<bool()>& done, Duration tick = Duration(0)) {
    std::size_t steps = 0;
    scheduler_->run_until([&] {
      if (++steps % kStepsPerTick == 0) clock_.advance(tick);
      return done();
    });
  }
  void finish(const std::vector<std::shared_ptr<Operation>>& operations,
              Duration tick = Duration(0)) {
    run_until(
        [&] {
          return std::ranges::all_of(operations,
                                     [](const auto& each) { return each->ticket->done(); });
        },
        tick);
  }

 private:
  static constexpr std::size_t kStepsPerTick = 50;
  static constexpr TransportLimits kLimits{
      .arena_bytes = kJobArena, .flags_per_peer = 1U << 12, .counters = 1U << 14};

  struct Rank {
    Rank(GroupJob& job, int rank, std::size_t groups_arena, std::unique_ptr<Device> with,
         HostConnections* connections, const MakeConnector& make_connector)
        : device(std::move(with)),
          job_connector(make_connector ? make_connector(*device) : nullptr),
          connector(connections != nullptr ? connections->connector(*device) : nullptr),
          transport(job.hub_.transport(rank)),
          engine(*transport, job.hub_.grid(), {job.clock_, job.clock_}, job.options_,
                 job.calibration_, kLimits, nullptr, nullptr, nullptr,
                 {.control_demux = &control_demux,
                  .device = device.get(),
                  .connector = job_connector.get()}),
          arena(kJobArena, kJobArena + groups_arena),
          engines(engine, control_demux,
                  {.transport = *transport,
                   .grid = job.hub_.grid(),
                   .clocks = {job.clock_, job.clock_},
                   .options = job.options_,
                   .calibration = job.calibration_,
                   .device = device.get(),
                   .connector = connector ? connector.get() : job_connector.get()},
                  arena) {}

    std::unique_ptr<Device> device;                                   // null if there is none
    std::unique_ptr<CommunicatorConnector> job_connector, connector;  // null if there is none
    std::unique_ptr<Transport> transport;
    ControlDemux control_demux;
    Engine engine;
    LocalArena arena;
    Engines engines;
    bool is_frozen = false;
  };

  Rank& at(int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }

  const Options options_;
  InProcessHub hub_;
  ManualClock clock_;
  const Calibration calibration_{.costs = parse_link_costs(options_.link_costs), .source = {}};
  std::function<bool(int rank, Engines& engines)> poll_;  // may be empty
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::unique_ptr<SeededScheduler> scheduler_;
};

}  // namespace kolo::test
