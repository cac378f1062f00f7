#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include "benchmarks/sim/simulator.h"
#include "topology/node_costs.h"

namespace kolo {

/// One direction of a simulated link: it passes one message at a time at its rate, plus at once the
/// bytes that it saved up while idle.
///
/// Units: microseconds, bytes, bytes per microsecond. Threads: one. Times must not decrease from
/// call to call.
class SimulatedLink {
 public:
  SimulatedLink(double bytes_per_us, double burst_bytes)
      : bytes_per_us_(bytes_per_us), burst_us_(burst_bytes / bytes_per_us) {}

  /// The time at which a message has passed that starts now, or after earlier messages.
  double pass(double now, double bytes) {
    paid_us_ = std::max(now - burst_us_, paid_us_) + bytes / bytes_per_us_;
    return std::max(now, paid_us_);
  }
  double free_us(double now) const { return std::max(now, paid_us_); }

 private:
  double bytes_per_us_, burst_us_;
  double paid_us_ = -std::numeric_limits<double>::infinity();
};

/// Several jobs that share one capacity equally, such as the memory of a node: each of n jobs
/// advances at `single` or `total / n` per unit of time, whichever is less.
///
///   single 1, total 1:   job a, work 2, from 0:    |--- 1 ---|--- 1/2 ---|        done at 3
///                        job b, work 2, from 1:              |--- 1/2 ---|- 1 -|  done at 4
///
/// All jobs advance alike, so one number describes their progress, and each ends when this number
/// reaches its mark.
///
/// Threads: one. Times must not decrease from call to call.
class SharedCapacity {
 public:
  SharedCapacity(double single, double total) : single_(single), total_(total) {}

  void add(double now, double work, int job) {
    advance(now);
    marks_.emplace(progress_ + work, job);
  }
  bool empty() const { return marks_.empty(); }
  /// The time at which the first job is done, unless others are added. Before: not empty.
  double next_end() const { return at_ + (marks_.top().first - progress_) / speed(); }
  /// Removes the job that is done at `now`, which is `next_end()`.
  int take(double now) {
    const auto [mark, job] = marks_.top();
    progress_ = mark;
    at_ = now;
    marks_.pop();
    return job;
  }

 private:
  using Mark = std::pair<double, int>;

  double speed() const { return std::min(single_, total_ / static_cast<double>(marks_.size())); }
  void advance(double now) {
    if (!empty()) progress_ += (now - at_) * speed();
    at_ = now;
  }

  double single_, total_;
  double progress_ = 0;  // of every job, since time 0
  double at_ = 0;        // time of that progress
  std::priority_queue<Mark, std::vector<Mark>, std::greater<>> marks_;
};

/// A step of one bucket.
struct SimulatedTask {
  std::uint32_t bucket;
  StepId step;
};

/// A FIFO queue that reuses its memory once it is empty.
class TaskQueue {
 public:
  bool empty() const { return next_ == tasks_.size(); }
  void push(SimulatedTask task) { tasks_.push_back(task); }
  SimulatedTask pop() {
    const SimulatedTask task = tasks_[next_++];
    if (empty()) {
      tasks_.clear();
      next_ = 0;
    }
    return task;
  }

 private:
  std::vector<SimulatedTask> tasks_;
  std::size_t next_ = 0;
};

/// A rank and its workers.
struct SimulatedRank {
  int number = 0;
  int node = 0;
  double slowness = 1;

  bool is_busy(Worker worker) const { return busy_[index(worker)]; }
  void set_busy(Worker worker, bool busy) { busy_[index(worker)] = busy; }
  TaskQueue& ready(Worker worker) { return ready_[static_cast<std::size_t>(worker)]; }

  SimulatedTask in_memory{};  ///< Work of the processor on this step.

 private:
  /// Messages and kernels share the processor.
  static std::size_t index(Worker worker) {
    return static_cast<std::size_t>(worker == Worker::kKernels ? Worker::kMessages : worker);
  }

  std::array<TaskQueue, kWorkers> ready_;
  std::array<bool, kWorkers> busy_{};
};

/// State shared by the ranks of a node.
struct SimulatedNode {
  SimulatedLink out, in;
  SharedCapacity memory{1, 1};
  std::uint32_t changes = 0;  ///< Changes of the set of kernels that share the memory.
  double collectives_free_us = 0;
};

/// The machines of a simulated job: where each rank is simulated, and the time of its steps.
///
/// Places are numbered by local rank and then by node, so that the order of simultaneous events
/// does not depend on the node, and equal nodes remain equal.
///
/// Threads: one. `grid` outlives it.
class SimulatedMachine {
 public:
  using Step = SimulatorSchedules::Step;

  /// Errors: UsageError for slowness that does not fit the grid or, with only_first_node, for
  ///         slowness or links that differ between nodes.
  SimulatedMachine(const ProcessGrid& grid, const SimulatorOptions& options);

  const MachineCosts& costs() const { return costs_; }
  std::uint32_t places() const { return static_cast<std::uint32_t>(ranks_.size()); }
  SimulatedRank& rank(std::uint32_t place) { return ranks_[place]; }
  const SimulatedRank& rank(std::uint32_t place) const { return ranks_[place]; }
  SimulatedNode& node_of(std::uint32_t place);
  std::span<SimulatedNode> nodes() { return nodes_; }
  /// Where a rank is simulated: itself, or its counterpart on node 0.
  std::uint32_t place_of(int rank) const;
  /// Whether only the ranks of node 0 are simulated.
  bool is_reduced() const { return is_reduced_; }
  /// Whether values by rank are equal for all ranks that one place represents.
  bool are_alike(const std::vector<double>& by_rank) const;

  /// The memory costs of a bucket, depending on whether it fits the cache together with the buckets
  /// of the other ranks of its node.
  NodeMemory memory_of(const BucketLayout& layout) const;
  /// The time that a step takes from its node's memory; empty if it does not use the memory.
  /// `is_inside`: its message or flag stays in the node.
  std::optional<double> memory_us(const Step& step, const NodeMemory& memory, bool is_inside) const;
  /// The time of all other steps except native ones.
  double time_us(const Step& step) const;
  /// The time of a native step. `most_bytes`: bytes that its busiest rank sends to others or
  /// receives; for an all-reduce, the whole.
  double native_us(NativeOp op, std::size_t most_bytes) const;

 private:
  int first_like(int rank) const;
  void place_ranks(const std::vector<double>& slowness);
  void furnish_nodes();

  const ProcessGrid& grid_;
  MachineCosts costs_;
  bool is_reduced_;
  std::vector<SimulatedRank> ranks_;     // by place
  std::vector<std::uint32_t> place_of_;  // by rank
  std::vector<SimulatedNode> nodes_;
};

}  // namespace kolo
