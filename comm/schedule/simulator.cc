#include "comm/schedule/simulator.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "comm/schedule/shared_capacity.h"
#include "topology/host_passages.h"

namespace kolo {
namespace {

using Step = SimulatorSchedules::Step;

struct Task {
  std::uint32_t bucket;
  StepId step;
};

/// First in, first out, in memory that is used again when all are out.
class TaskQueue {
 public:
  bool empty() const { return next_ == tasks_.size(); }
  void push(Task task) { tasks_.push_back(task); }
  Task pop() {
    const Task task = tasks_[next_++];
    if (empty()) {
      tasks_.clear();
      next_ = 0;
    }
    return task;
  }

 private:
  std::vector<Task> tasks_;
  std::size_t next_ = 0;
};

enum class EventKind : std::uint8_t {
  kStart,      // a bucket at a rank
  kDone,       // a step, by the worker that it had
  kMemory,     // the first of a node's kernels, unless its changes (`step`) are more by now
  kSent,       // a send: it has left its rank's link
  kHead,       // of a message, at the receiver's link
  kDelivered,  // a message or flag
  kMet,        // a native step, by all of its ranks
};

/// Events of one time happen in an order that does not depend on which node they happen at, so that
/// nodes that are alike remain so.
struct Event {
  double time;
  double tail;  // of kHead: when the last byte is there
  std::uint32_t bucket;
  StepId step;
  std::uint32_t place;  // of the rank, by local rank and then by node
  EventKind kind;

  friend bool operator>(const Event& a, const Event& b) {
    return std::tie(a.time, a.bucket, a.step, a.place, a.kind) >
           std::tie(b.time, b.bucket, b.step, b.place, b.kind);
  }
};

/// One direction of a link: passes bytes at its rate, but so many at once as it has saved up while
/// it had nothing to do.
class Link {
 public:
  /// When a message is through that begins now, or when those before it are through.
  double pass(double now, double bytes, double bytes_per_us, double burst_bytes) {
    paid_us_ = std::max(now - burst_bytes / bytes_per_us, paid_us_) + bytes / bytes_per_us;
    return std::max(now, paid_us_);
  }
  double free_us(double now) const { return std::max(now, paid_us_); }

 private:
  double paid_us_ = -std::numeric_limits<double>::infinity();
};

struct Rank {
  int number = 0;
  int node = 0;
  double slowness = 1;
  std::array<TaskQueue, kWorkers> ready;  // by worker
  std::array<bool, kWorkers> busy{};      // kMessages: the processor, whatever it does
  Task in_memory{};                       // what the processor does there
};

struct Node {
  Link out = {}, in = {};
  double collectives_free_us = 0;
  SharedCapacity memory;
  std::uint32_t changes = 0;  // of the kernels that share the memory
};

/// One bucket on all ranks.
struct Run {
  std::vector<std::size_t> first = {};      // of each place's steps
  std::vector<std::uint32_t> missing = {};  // what each step waits for
  std::vector<std::size_t> remaining = {};  // steps of each place that are not complete
  std::size_t ranks = 0;                    // that are not done
  double finish_us = 0;
};

class Simulation {
 public:
  Simulation(const ProcessGrid& grid, std::span<const SimulatedBucket> buckets,
             const SimulatorOptions& options)
      : grid_(grid),
        buckets_(buckets),
        costs_(options.costs),
        model_(grid, costs_.links),
        is_reduced_(options.only_first_node),
        runs_(buckets.size()) {
    place_ranks(options.slowness);
    nodes_.assign(static_cast<std::size_t>(is_reduced_ ? 1 : grid.num_nodes()),
                  Node{.memory = SharedCapacity(1, 1)});
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      check_bucket(buckets[i]);
      runs_[i].ranks = ranks_.size();
      memories_.push_back(memory_of(buckets[i]));
      for (std::uint32_t place = 0; place < ranks_.size(); ++place) {
        const auto rank = static_cast<std::size_t>(ranks_[place].number);
        push(buckets[i].start_us[rank] + costs_.links.bucket_us, EventKind::kStart,
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
  void place_ranks(const std::vector<double>& slowness) {
    const auto world = static_cast<std::size_t>(grid_.world_size());
    check(slowness.empty() || slowness.size() == world, "not one slowness per rank");
    std::vector<int> order;
    for (int rank = 0; rank < grid_.world_size(); ++rank) {
      if (!is_reduced_ || grid_.node(rank) == 0) order.push_back(rank);
      check(
          !is_reduced_ || slowness.empty() || slowness_of(slowness, rank) == first(slowness, rank),
          "nodes that are not equally slow are not alike");
    }
    std::sort(order.begin(), order.end(), [&](int a, int b) {
      return std::pair(grid_.local_rank(a), grid_.node(a)) <
             std::pair(grid_.local_rank(b), grid_.node(b));
    });
    place_of_.assign(world, 0);
    for (int rank : order) {
      place_of_[static_cast<std::size_t>(rank)] = narrow<std::uint32_t>(ranks_.size());
      Rank& added = ranks_.emplace_back();
      added.number = rank;
      added.node = grid_.node(rank);
      added.slowness = slowness.empty() ? 1.0 : slowness_of(slowness, rank);
    }
  }

  /// By rank, that of the rank itself and of its like on node 0.
  static double slowness_of(const std::vector<double>& values, int rank) {
    return values[static_cast<std::size_t>(rank)];
  }
  double first(const std::vector<double>& values, int rank) const {
    return slowness_of(values, first_like(rank));
  }
  int first_like(int rank) const {
    return grid_.ranks_of_node(0)[static_cast<std::size_t>(grid_.local_rank(rank))];
  }

  void check_bucket(const SimulatedBucket& bucket) const {
    check(bucket.start_us.size() == static_cast<std::size_t>(grid_.world_size()),
          "not one start per rank");
    if (!is_reduced_) return;
    check(bucket.schedules->symmetry() != NodeSymmetry::kNone,
          "one node cannot stand for all without a symmetry");
    for (int rank = 0; rank < grid_.world_size(); ++rank) {
      check(slowness_of(bucket.start_us, rank) == first(bucket.start_us, rank),
            "nodes that do not start alike are not alike");
    }
  }

  /// Whether the bucket fits the cache together with those of the other ranks of its node.
  NodeMemory memory_of(const SimulatedBucket& bucket) const {
    const BucketLayout& layout = bucket.schedules->layout();
    const auto bytes = static_cast<double>(layout.count * size_of(layout.dtype));
    return {costs_.links.memory, bytes * grid_.local_size(grid_.leader(0))};
  }

  const SimulatorSchedules::Lines& lines(std::uint32_t bucket, std::uint32_t place) const {
    return buckets_[bucket].schedules->of_rank(ranks_[place].number);
  }
  const Step& step(Task task, std::uint32_t place) const {
    return lines(task.bucket, place).steps[task.step];
  }
  int peer(Task task, std::uint32_t place) const {
    return buckets_[task.bucket].schedules->peer(ranks_[place].number, step(task, place));
  }
  /// Where a rank is played: itself, or its like on node 0.
  std::uint32_t place_of(int rank) const {
    return place_of_[static_cast<std::size_t>(is_reduced_ ? first_like(rank) : rank)];
  }
  Node& node_of(std::uint32_t place) {
    return nodes_[is_reduced_ ? 0 : static_cast<std::size_t>(ranks_[place].node)];
  }

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

  /// Every step waits for what its schedule says, and for its bucket to be started at its rank.
  void prepare(std::uint32_t bucket) {
    Run& run = runs_[bucket];
    for (std::uint32_t place = 0; place < ranks_.size(); ++place) {
      run.first.push_back(run.missing.size());
      run.remaining.push_back(lines(bucket, place).steps.size());
      for (const Step& line : lines(bucket, place).steps) run.missing.push_back(line.waits + 1);
    }
  }

  void satisfy(Task task, std::uint32_t place) {
    Run& run = runs_[task.bucket];
    if (--run.missing[run.first[place] + task.step] == 0) release(task, place);
  }

  void release(Task task, std::uint32_t place) {
    const Worker worker = step(task, place).worker;
    if (worker == Worker::kCollectives) return meet(task, place);
    ranks_[place].ready[static_cast<std::size_t>(worker)].push(task);
  }

  void complete(Task task, std::uint32_t place) {
    completed_.push_back(task);
    settle(place);
  }

  /// Draws all consequences of what is complete at a rank, and gives its workers something to do.
  void settle(std::uint32_t place) {
    while (!completed_.empty()) {
      const Task task = completed_.back();
      completed_.pop_back();
      for (StepId later : lines(task.bucket, place).successors(task.step)) {
        satisfy({task.bucket, later}, place);
      }
      if (--runs_[task.bucket].remaining[place] == 0) finish(task.bucket);
    }
    Rank& rank = ranks_[place];
    if (!is_busy(rank, Worker::kMessages)) {
      if (has_ready(rank, Worker::kMessages)) {
        begin(Worker::kMessages, place);
      } else if (has_ready(rank, Worker::kKernels)) {
        begin(Worker::kKernels, place);
      }
    }
    for (Worker worker : {Worker::kPacks, Worker::kDeviceKernels, Worker::kDown, Worker::kUp}) {
      if (!is_busy(rank, worker) && has_ready(rank, worker)) begin(worker, place);
    }
  }

  /// Which worker's time a step takes: messages and kernels share the processor.
  static std::size_t busy_with(Worker worker) {
    return static_cast<std::size_t>(worker == Worker::kKernels ? Worker::kMessages : worker);
  }
  static bool is_busy(const Rank& rank, Worker worker) { return rank.busy[busy_with(worker)]; }
  static bool has_ready(const Rank& rank, Worker worker) {
    return !rank.ready[static_cast<std::size_t>(worker)].empty();
  }

  void begin(Worker worker, std::uint32_t place) {
    Rank& rank = ranks_[place];
    const Task task = rank.ready[static_cast<std::size_t>(worker)].pop();
    rank.busy[busy_with(worker)] = true;
    if (const auto work_us = memory_us(task, place)) {
      rank.in_memory = task;
      node_of(place).memory.add(now_, rank.slowness * *work_us, static_cast<int>(place));
      return expect_memory(place);
    }
    push(now_ + rank.slowness * time_us(task, place), EventKind::kDone, task, place);
  }

  /// What a step takes of the time of its node's memory, if it works there.
  std::optional<double> memory_us(Task task, std::uint32_t place) const {
    const Step& line = step(task, place);
    const NodeMemory& memory = memories_[task.bucket];
    const auto bytes = static_cast<double>(line.bytes);
    if (line.worker == Worker::kKernels) {
      const auto shared = static_cast<double>(line.shared_bytes);
      return memory.own_us(bytes - shared) + memory.shared_us(shared);
    }
    if (line.worker != Worker::kMessages || !is_inside(task, place)) return std::nullopt;
    // Into a ring of bytes that both ends map, and out of it.
    if (line.kind == StepKind::kSend) return memory.own_us(2 * bytes);
    if (line.kind != StepKind::kRecv) return std::nullopt;
    return memory.own_us(bytes) + memory.shared_us(bytes);
  }

  /// What all other steps take.
  double time_us(Task task, std::uint32_t place) const {
    const Step& line = step(task, place);
    const auto bytes = static_cast<double>(line.bytes);
    if (line.worker == Worker::kMessages) {
      const bool is_flag = line.kind == StepKind::kSignal || line.kind == StepKind::kAwait;
      return is_flag ? costs_.links.step_us : costs_.links.network.message_us;
    }
    if (line.worker == Worker::kDown || line.worker == Worker::kUp) {
      return transfer_us(costs_.links.staging, bytes / 2);  // Bytes are those read plus written.
    }
    return transfer_us(costs_.device_kernel, bytes);
  }

  /// A message or flag within a node.
  bool is_inside(Task task, std::uint32_t place) const {
    return grid_.node(peer(task, place)) == ranks_[place].node;
  }

  void done(Task task, std::uint32_t place) {
    const Step& line = step(task, place);
    ranks_[place].busy[busy_with(line.worker)] = false;
    const bool gives = line.kind == StepKind::kSend || line.kind == StepKind::kSignal;
    if (gives && !is_inside(task, place)) {
      transmit(task, place);
      return settle(place);
    }
    if (gives && line.partner != SimulatorSchedules::kNobody) {
      push(now_ + costs_.links.memory.latency_us, EventKind::kDelivered, task, place);
    }
    complete(task, place);
  }

  void expect_memory(std::uint32_t place) {
    Node& node = node_of(place);
    ++node.changes;
    if (node.memory.empty()) return;
    push(node.memory.next_end(), EventKind::kMemory, {0, node.changes}, place);
  }

  void memory_done(std::uint32_t place, std::uint32_t changes) {
    Node& node = node_of(place);
    if (node.changes != changes) return;
    const auto done_at = static_cast<std::uint32_t>(node.memory.take(now_));
    expect_memory(done_at);
    push(now_ + ranks_[done_at].slowness * costs_.links.step_us, EventKind::kDone,
         ranks_[done_at].in_memory, done_at);
  }

  void transmit(Task task, std::uint32_t place) {
    const auto bytes = static_cast<double>(step(task, place).bytes);
    const NetworkCost& network = costs_.links.network;
    Link& out = node_of(place).out;
    const double begin_us = out.free_us(now_);
    const double sent_us = out.pass(now_, bytes, network.bytes_per_us, costs_.burst_bytes);
    push(sent_us, EventKind::kSent, task, place);
    if (step(task, place).partner == SimulatorSchedules::kNobody) return;
    events_.push({begin_us + network.latency_us, sent_us + network.latency_us, task.bucket,
                  task.step, place, EventKind::kHead});
  }

  void enter_receiver(const Event& head) {
    const Task task{head.bucket, head.step};
    Node& node = node_of(place_of(peer(task, head.place)));
    const double through_us = node.in.pass(now_, static_cast<double>(step(task, head.place).bytes),
                                           costs_.links.network.bytes_per_us, costs_.burst_bytes);
    push(std::max(through_us, head.tail), EventKind::kDelivered, task, head.place);
  }

  void deliver(Task task, std::uint32_t sender) {
    const std::uint32_t place = place_of(peer(task, sender));
    satisfy({task.bucket, step(task, sender).partner}, place);
    settle(place);
  }

  using Meeting = std::tuple<std::uint32_t, int, std::uint32_t>;  // bucket, node or -1, ordinal

  Meeting meeting(Task task, std::uint32_t place) const {
    const Step& line = step(task, place);
    const int where = line.group == NativeGroup::kNode ? ranks_[place].node : -1;
    return {task.bucket, where, line.ordinal};
  }

  // Collectives of a node follow each other in the order in which all its ranks are there.
  void meet(Task task, std::uint32_t place) {
    const Step& line = step(task, place);
    const bool is_in_node = line.group == NativeGroup::kNode;
    const int node = ranks_[place].node;
    const std::size_t size = is_in_node ? grid_.ranks_of_node(node).size() : ranks_.size();
    auto& present = present_[meeting(task, place)];
    present.emplace_back(place, task.step);
    if (present.size() < size) return;
    double begin_us = now_;
    const auto reserve = [&](double end_us) {
      for (Node& other : nodes_) {
        if (is_in_node && &other != &node_of(place)) continue;
        begin_us = std::max(begin_us, other.collectives_free_us);
        other.collectives_free_us = std::max(end_us, other.collectives_free_us);
      }
    };
    reserve(now_);
    const double end_us = begin_us + native_us(line, size);
    reserve(end_us);
    push(end_us, EventKind::kMet, task, place);
  }

  // The number of a native step is the same on all of its ranks, the number of its line is not.
  void complete_met(Task task, std::uint32_t place) {
    const auto met = present_.extract(meeting(task, place));
    for (const auto& [member, step] : met.mapped()) complete({task.bucket, step}, member);
  }

  double native_us(const Step& line, std::size_t ranks) const {
    if (line.native == NativeOp::kAllReduce) return model_.native_us(line.bytes);
    const auto size = static_cast<double>(ranks);
    return transfer_us(costs_.links.device, (size - 1) / size * static_cast<double>(line.bytes));
  }

  static double transfer_us(const LinkCost& link, double bytes) {
    return link.latency_us + bytes / link.bytes_per_us;
  }

  void finish(std::uint32_t bucket) {
    Run& run = runs_[bucket];
    run.finish_us = now_;
    if (--run.ranks == 0) run.missing = {};
  }

  [[noreturn]] void complain(std::uint32_t bucket) const {
    std::string what = "steps wait for each other";
    int rank = -1;
    for (std::uint32_t place = 0; place < ranks_.size(); ++place) {
      const auto waiting = first_waiting(bucket, place);
      if (!waiting) continue;
      const bool is_hopeless = !is_native(*waiting, place) && !has_giver(*waiting, place);
      if (rank >= 0 && !is_hopeless) continue;
      rank = ranks_[place].number;
      const std::uint32_t ordinal = step(*waiting, place).ordinal;
      what = is_native(*waiting, place)
                 ? fmt::format("step {} waits for the others of native step {}", waiting->step,
                               ordinal)
                 : fmt::format("step {} waits for number {} of rank {}{}", waiting->step, ordinal,
                               peer(*waiting, place), is_hopeless ? ", which never gives it" : "");
      if (is_hopeless) break;
    }
    throw KoloError(
        {.code = ErrorCode::kInternal,
         .rank = rank,
         .what = fmt::format("the simulation of bucket {} stands still: {}", bucket, what)});
  }

  /// The first step of a rank that waits for nothing but other ranks. (What comes before a step has
  /// lower numbers.)
  std::optional<Task> first_waiting(std::uint32_t bucket, std::uint32_t place) const {
    const auto count = lines(bucket, place).steps.size();
    for (StepId id = 0; id < count; ++id) {
      const Task task{bucket, id};
      const std::uint32_t missing = runs_[bucket].missing[runs_[bucket].first[place] + id];
      const StepKind kind = step(task, place).kind;
      const bool takes = kind == StepKind::kRecv || kind == StepKind::kAwait;
      if (takes && missing == 1) return task;
      const bool is_met = !present_.contains(meeting(task, place));
      if (kind == StepKind::kNative && missing == 0 && !is_met) return task;
    }
    return std::nullopt;
  }

  bool is_native(Task task, std::uint32_t place) const {
    return step(task, place).kind == StepKind::kNative;
  }

  /// Whether some step at the peer gives what this step takes.
  bool has_giver(Task task, std::uint32_t place) const {
    const StepKind kind =
        step(task, place).kind == StepKind::kRecv ? StepKind::kSend : StepKind::kSignal;
    const std::uint32_t giver = place_of(peer(task, place));
    const auto& steps = lines(task.bucket, giver).steps;
    for (StepId id = 0; id < steps.size(); ++id) {
      const bool leads_here = steps[id].kind == kind && steps[id].partner == task.step &&
                              place_of(peer({task.bucket, id}, giver)) == place;
      if (leads_here) return true;
    }
    return false;
  }

  const ProcessGrid& grid_;
  std::span<const SimulatedBucket> buckets_;
  MachineCosts costs_;
  CostModel model_;
  bool is_reduced_;
  double now_ = 0;
  std::vector<Rank> ranks_;              // by place
  std::vector<std::uint32_t> place_of_;  // by rank
  std::vector<Node> nodes_;
  std::vector<Run> runs_;             // by bucket
  std::vector<NodeMemory> memories_;  // by bucket
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<Task> completed_;  // at the rank that is being settled
  /// Places, with the step there, that are ready for a native step.
  std::map<Meeting, std::vector<std::pair<std::uint32_t, StepId>>> present_;
};

}  // namespace

std::vector<double> simulate(const ProcessGrid& grid, std::span<const SimulatedBucket> buckets,
                             const SimulatorOptions& options) {
  return Simulation(grid, buckets, options).run();
}

}  // namespace kolo
