#include "benchmarks/sim/simulator.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <queue>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "benchmarks/sim/simulated_machine.h"
#include "comm/base/check.h"

namespace kolo {
namespace {

using PlayedStep = SimulatorSchedules::Step;

using Task = SimulatedTask;

enum class EventKind : std::uint8_t {
  kStart,      // a bucket starts at a rank
  kDone,       // a worker completes a step
  kMemory,     // the first of a node's kernels ends; void if `changes` differ from `step`
  kSent,       // a send has left its rank's link
  kHead,       // a message's first byte is at the receiver's link
  kDelivered,  // a message or flag is delivered
  kMet,        // a native step has been reached by all its ranks
};

/// Something that happens at a time and place. Simultaneous events happen in the order of places.
struct Event {
  double time;
  double tail;  // for kHead: the time at which the last byte is received
  std::uint32_t bucket;
  StepId step;
  std::uint32_t place;
  EventKind kind;

  friend bool operator>(const Event& a, const Event& b) {
    return std::tie(a.time, a.bucket, a.step, a.place, a.kind) >
           std::tie(b.time, b.bucket, b.step, b.place, b.kind);
  }
};

/// The progress of one bucket on all ranks.
struct Run {
  std::vector<std::size_t> first = {};      // index of the first step, by place
  std::vector<std::uint32_t> missing = {};  // number of unmet conditions, by step
  std::vector<std::size_t> remaining = {};  // number of incomplete steps, by place
  std::size_t ranks = 0;                    // ranks that are not done
  double finish_us = 0;
};

class Simulation {
 public:
  Simulation(const ProcessGrid& grid, std::span<const SimulatedBucket> buckets,
             const SimulatorOptions& options)
      : grid_(grid), buckets_(buckets), machine_(grid, options), runs_(buckets.size()) {
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      check_bucket(buckets[i]);
      runs_[i].ranks = machine_.places();
      memories_.push_back(machine_.memory_of(buckets[i].schedules->layout()));
      for (std::uint32_t place = 0; place < machine_.places(); ++place) {
        const auto rank = static_cast<std::size_t>(machine_.rank(place).number);
        push(buckets[i].start_us[rank] + machine_.costs().links.bucket_us, EventKind::kStart,
             {narrow<std::uint32_t>(i), 0}, place);
      }
    }
  }

  std::vector<double> run() {
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      handle(event);
    }
    std::vector<double> finish_us;
    for (std::uint32_t i = 0; i < runs_.size(); ++i) {
      if (runs_[i].ranks > 0) complain(i);
      finish_us.push_back(runs_[i].finish_us);
    }
    return finish_us;
  }

 private:
  void check_bucket(const SimulatedBucket& bucket) const {
    check(bucket.start_us.size() == static_cast<std::size_t>(grid_.world_size()),
          "not one start per rank");
    if (!machine_.is_reduced()) return;
    check(bucket.schedules->symmetry() != NodeSymmetry::kNone,
          "one node cannot stand for all without a symmetry");
    check(machine_.are_alike(bucket.start_us), "nodes that do not start alike are not alike");
  }

  const SimulatorSchedules::Lines& lines(std::uint32_t bucket, std::uint32_t place) const {
    return buckets_[bucket].schedules->of_rank(machine_.rank(place).number);
  }
  const PlayedStep& step(Task task, std::uint32_t place) const {
    return lines(task.bucket, place).steps[task.step];
  }
  int peer(Task task, std::uint32_t place) const {
    return buckets_[task.bucket].schedules->peer(machine_.rank(place).number, step(task, place));
  }
  const LinkCosts& links() const { return machine_.costs().links; }

  void push(double time, EventKind kind, Task task, std::uint32_t place) {
    events_.push({time, 0, task.bucket, task.step, place, kind});
  }

  void handle(const Event& event) {
    const Task task{event.bucket, event.step};
    switch (event.kind) {
      case EventKind::kStart:
        start(event.bucket, event.place);
        break;
      case EventKind::kDone:
        done(task, event.place);
        break;
      case EventKind::kMemory:
        memory_done(event.place, event.step);
        break;
      case EventKind::kSent:
        complete(task, event.place);
        break;
      case EventKind::kHead:
        enter_receiver(event);
        break;
      case EventKind::kDelivered:
        deliver(task, event.place);
        break;
      case EventKind::kMet:
        complete_met(task, event.place);
        break;
    }
  }

  void start(std::uint32_t bucket, std::uint32_t place) {
    Run& run = runs_[bucket];
    if (run.missing.empty()) prepare(bucket);
    const auto count = narrow<StepId>(lines(bucket, place).steps.size());
    if (count == 0) finish(bucket);
    for (StepId id = 0; id < count; ++id) satisfy({bucket, id}, place);
    settle(place);
  }

  /// Makes each step wait for its predecessors and for the start of its bucket at its rank.
  void prepare(std::uint32_t bucket) {
    Run& run = runs_[bucket];
    for (std::uint32_t place = 0; place < machine_.places(); ++place) {
      run.first.push_back(run.missing.size());
      run.remaining.push_back(lines(bucket, place).steps.size());
      for (const PlayedStep& line : lines(bucket, place).steps)
        run.missing.push_back(line.waits + 1);
    }
  }

  void satisfy(Task task, std::uint32_t place) {
    Run& run = runs_[task.bucket];
    if (--run.missing[run.first[place] + task.step] == 0) release(task, place);
  }

  void release(Task task, std::uint32_t place) {
    const Worker worker = step(task, place).worker;
    if (worker == Worker::kCollectives) return meet(task, place);
    machine_.rank(place).ready(worker).push(task);
  }

  void complete(Task task, std::uint32_t place) {
    completed_.push_back(task);
    settle(place);
  }

  /// Processes all consequences of completed steps at a place, and starts its idle workers.
  void settle(std::uint32_t place) {
    while (!completed_.empty()) {
      const Task task = completed_.back();
      completed_.pop_back();
      for (StepId later : lines(task.bucket, place).successors(task.step)) {
        satisfy({task.bucket, later}, place);
      }
      if (--runs_[task.bucket].remaining[place] == 0) finish(task.bucket);
    }
    if (!machine_.rank(place).is_busy(Worker::kMessages)) {
      if (!begin_next(Worker::kMessages, place)) begin_next(Worker::kKernels, place);
    }
    for (Worker worker : {Worker::kPacks, Worker::kDeviceKernels, Worker::kDown, Worker::kUp}) {
      if (!machine_.rank(place).is_busy(worker)) begin_next(worker, place);
    }
  }

  /// Starts the worker's next step. Returns false if there is none.
  bool begin_next(Worker worker, std::uint32_t place) {
    SimulatedRank& rank = machine_.rank(place);
    if (rank.ready(worker).empty()) return false;
    const Task task = rank.ready(worker).pop();
    rank.set_busy(worker, true);
    const PlayedStep& line = step(task, place);
    const bool has_peer = line.worker == Worker::kMessages && line.kind != StepKind::kExpose;
    const auto work_us =
        machine_.memory_us(line, memories_[task.bucket], has_peer && is_inside(task, place));
    if (work_us) {
      rank.in_memory = task;
      machine_.node_of(place).memory.add(now_, rank.slowness * *work_us, static_cast<int>(place));
      expect_memory(place);
    } else {
      push(now_ + rank.slowness * machine_.time_us(line), EventKind::kDone, task, place);
    }
    return true;
  }

  /// Returns whether the peer of a message or flag is on the same node.
  bool is_inside(Task task, std::uint32_t place) const {
    return grid_.node(peer(task, place)) == machine_.rank(place).node;
  }

  void done(Task task, std::uint32_t place) {
    const PlayedStep& line = step(task, place);
    machine_.rank(place).set_busy(line.worker, false);
    const bool gives = line.kind == StepKind::kSend || line.kind == StepKind::kSignal;
    if (gives && !is_inside(task, place)) {
      transmit(task, place);
      return settle(place);
    }
    if (gives && line.partner != SimulatorSchedules::kNobody) {
      push(now_ + links().memory.latency_us, EventKind::kDelivered, task, place);
    }
    complete(task, place);
  }

  void expect_memory(std::uint32_t place) {
    SimulatedNode& node = machine_.node_of(place);
    ++node.changes;
    if (node.memory.empty()) return;
    push(node.memory.next_end(), EventKind::kMemory, {0, node.changes}, place);
  }

  void memory_done(std::uint32_t place, std::uint32_t changes) {
    SimulatedNode& node = machine_.node_of(place);
    if (node.changes != changes) return;
    const auto done_at = static_cast<std::uint32_t>(node.memory.take(now_));
    expect_memory(done_at);
    const SimulatedRank& rank = machine_.rank(done_at);
    push(now_ + rank.slowness * links().step_us, EventKind::kDone, rank.in_memory, done_at);
  }

  void transmit(Task task, std::uint32_t place) {
    const auto bytes = static_cast<double>(step(task, place).bytes);
    const double latency_us = links().network.latency_us;
    SimulatedLink& out = machine_.node_of(place).out;
    const double begin_us = out.free_us(now_);
    const double sent_us = out.pass(now_, bytes);
    push(sent_us, EventKind::kSent, task, place);
    if (step(task, place).partner == SimulatorSchedules::kNobody) return;
    events_.push({begin_us + latency_us, sent_us + latency_us, task.bucket, task.step, place,
                  EventKind::kHead});
  }

  void enter_receiver(const Event& head) {
    const Task task{head.bucket, head.step};
    const std::uint32_t place = machine_.place_of(peer(task, head.place));
    const auto bytes = static_cast<double>(step(task, head.place).bytes);
    const double through_us = machine_.node_of(place).in.pass(now_, bytes);
    push(std::max(through_us, head.tail), EventKind::kDelivered, task, head.place);
  }

  void deliver(Task task, std::uint32_t sender) {
    const std::uint32_t place = machine_.place_of(peer(task, sender));
    satisfy({task.bucket, step(task, sender).partner}, place);
    settle(place);
  }

  using Meeting = std::tuple<std::uint32_t, int, std::uint32_t>;  // bucket, node or -1, ordinal

  Meeting meeting(Task task, std::uint32_t place) const {
    const PlayedStep& line = step(task, place);
    const int where = line.group == NativeGroup::kNode ? machine_.rank(place).node : -1;
    return {task.bucket, where, line.ordinal};
  }

  // Native steps of a node follow each other in the order in which all their ranks reached them.
  void meet(Task task, std::uint32_t place) {
    const PlayedStep& line = step(task, place);
    const bool is_in_node = line.group == NativeGroup::kNode;
    const int node = machine_.rank(place).node;
    const std::size_t size = is_in_node ? grid_.ranks_of_node(node).size() : machine_.places();
    auto& present = present_[meeting(task, place)];
    present.emplace_back(place, task.step);
    if (present.size() < size) return;
    double begin_us = now_;
    const auto reserve = [&](double end_us) {
      for (SimulatedNode& other : machine_.nodes()) {
        if (is_in_node && &other != &machine_.node_of(place)) continue;
        begin_us = std::max(begin_us, other.collectives_free_us);
        other.collectives_free_us = std::max(end_us, other.collectives_free_us);
      }
    };
    reserve(now_);
    std::size_t most_bytes = 0;
    for (const auto& [member, id] : present) {
      most_bytes = std::max(most_bytes, step({task.bucket, id}, member).bytes);
    }
    const double end_us = begin_us + machine_.native_us(line.native, most_bytes);
    reserve(end_us);
    push(end_us, EventKind::kMet, task, place);
  }

  // A native step has the same ordinal on all of its ranks, but not the same index.
  void complete_met(Task task, std::uint32_t place) {
    const auto met = present_.extract(meeting(task, place));
    for (const auto& [member, step] : met.mapped()) complete({task.bucket, step}, member);
  }

  void finish(std::uint32_t bucket) {
    Run& run = runs_[bucket];
    run.finish_us = now_;
    if (--run.ranks == 0) run.missing = {};
  }

  /// Reports a deadlock: the first step that waits only for other ranks, on the first rank that has
  /// one. (The predecessors of a step have lower numbers.)
  [[noreturn]] void complain(std::uint32_t bucket) const {
    std::string what = "steps wait for each other";
    int rank = -1;
    for (std::uint32_t place = 0; place < machine_.places() && rank < 0; ++place) {
      const auto count = lines(bucket, place).steps.size();
      for (StepId id = 0; id < count && rank < 0; ++id) {
        const PlayedStep& line = step({bucket, id}, place);
        const std::uint32_t missing = runs_[bucket].missing[runs_[bucket].first[place] + id];
        if (!line.takes() || missing != 1) continue;
        rank = machine_.rank(place).number;
        what = fmt::format("step {} waits for number {} of rank {}", id, line.ordinal,
                           peer({bucket, id}, place));
      }
    }
    throw KoloError(
        {.code = ErrorCode::kInternal,
         .rank = rank,
         .what = fmt::format("the simulation of bucket {} is stuck: {}", bucket, what)});
  }

  const ProcessGrid& grid_;
  std::span<const SimulatedBucket> buckets_;
  SimulatedMachine machine_;
  double now_ = 0;
  std::vector<Run> runs_;             // by bucket
  std::vector<NodeMemory> memories_;  // by bucket
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<Task> completed_;  // steps at the place that `settle` processes
  /// Places that have reached a native step, with the step's index there.
  std::map<Meeting, std::vector<std::pair<std::uint32_t, StepId>>> present_;
};

}  // namespace

std::vector<double> simulate(const ProcessGrid& grid, std::span<const SimulatedBucket> buckets,
                             const SimulatorOptions& options) {
  return Simulation(grid, buckets, options).run();
}

}  // namespace kolo
