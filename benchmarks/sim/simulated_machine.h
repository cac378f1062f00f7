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

/// One direction of a simulated link. It passes one message at a time at its rate. While idle it
/// saves up bytes, which then pass at once.
///
/// Units: microseconds, bytes, bytes per microsecond. Threads: one. Times must not decrease from
/// call to call.
class SimulatedLink {
 public:
  SimulatedLink(double bytes_per_us, double burst_bytes)
      : bytes_per_us_(bytes_per_us), burst_us_(burst_bytes / bytes_per_us) {}

  /// Returns the time at which a message that starts now has passed. Earlier messages pass first.
  double pass(double now, double bytes) {
    paid_us_ = std::max(now - burst_us_, paid_us_) + bytes / bytes_per_us_;
    return std::max(now, paid_us_);
  }
  double free_us(double now) const { return std::max(now, paid_us_); }

 private:
  double bytes_per_us_, burst_us_;
  double paid_us_ = -std::numeric_limits<double>::infinity();
};

/// Several jobs that share one capacity equally, such as the memory bandwidth of a node. Each of n
/// jobs advances by `single` or `total / n` per unit of time, whichever is less.
///
///   single 1, total 1:   job a, work 2, from 0:    |--- 1 ---|--- 1/2 ---|        done at 3
///                        job b, work 2, from 1:              |--- 1/2 ---|- 1 -|  done at 4
///
/// All jobs advance at the same rate, so one number describes their progress. A job ends when this
/// number reaches its mark.
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
  /// Returns the time at which the first job is done if no other job is added. Before: not empty.
  double next_end() const { return at_ + (marks_.top().first - progress_) / speed(); }
  /// Removes the job that is done at `now` and returns its number. `now` is `next_end()`.
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
  double progress_ = 0;  // progress of every job since time 0
  double at_ = 0;        // time at which `progress_` was computed
  std::priority_queue<Mark, std::vector<Mark>, std::greater<>> marks_;
};

/// A step of one bucket.
struct SimulatedTask {
  std::uint32_t bucket;
  StepId step;
};

/// A FIFO queue that reuses its memory when it is empty.
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

/// A rank and its workers, each with a queue of steps that are ready.
struct SimulatedRank {
  int number = 0;
  int node = 0;
  double slowness = 1;

  bool is_busy(Worker worker) const { return busy_[index(worker)]; }
  void set_busy(Worker worker, bool busy) { busy_[index(worker)] = busy; }
  TaskQueue& ready(Worker worker) { return ready_[static_cast<std::size_t>(worker)]; }

  SimulatedTask in_memory{};  ///< The step whose kernel now uses the node's memory.

 private:
  /// Maps kKernels to kMessages, because messages and kernels share the processor.
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
  std::uint32_t changes = 0;  ///< Number of changes to the set of kernels that share the memory.
  double collectives_free_us = 0;
};

/// The machines of a simulated job. Each simulated rank has a place, which may represent the ranks
/// of other nodes.
///
/// Places are numbered by local rank, then by node. Simultaneous events happen in the order of
/// places, so this order does not depend on the node, and equal nodes remain equal.
///
/// Threads: one. `grid` outlives it.
class SimulatedMachine {
 public:
  using Step = SimulatorSchedules::Step;

  /// Errors: UsageError if the slowness does not fit the grid or, with only_first_node, if slowness
  /// or links differ between nodes.
  SimulatedMachine(const ProcessGrid& grid, const SimulatorOptions& options);

  const MachineCosts& costs() const { return costs_; }
  std::uint32_t places() const { return static_cast<std::uint32_t>(ranks_.size()); }
  SimulatedRank& rank(std::uint32_t place) { return ranks_[place]; }
  const SimulatedRank& rank(std::uint32_t place) const { return ranks_[place]; }
  SimulatedNode& node_of(std::uint32_t place);
  std::span<SimulatedNode> nodes() { return nodes_; }
  /// Returns the place that represents `rank`, which may be that of its equivalent on node 0.
  std::uint32_t place_of(int rank) const;
  /// Returns whether only the ranks of node 0 are simulated.
  bool is_reduced() const { return is_reduced_; }
  /// Returns whether values by rank are equal for all ranks that one place represents.
  bool are_alike(const std::vector<double>& by_rank) const;

  /// Returns the memory costs of a bucket. They depend on whether all buckets of the node's ranks
  /// fit into the cache together.
  NodeMemory memory_of(const BucketLayout& layout) const;
  /// Returns the time for which a step uses its node's memory; empty if it does not use the memory.
  /// `is_inside`: the step's message or flag stays in the node.
  std::optional<double> memory_us(const Step& step, const NodeMemory& memory, bool is_inside) const;
  /// Returns the time of a step that does not use the memory and is not native.
  double time_us(const Step& step) const;
  /// Returns the time of a native step. `most_bytes`: bytes that its busiest rank sends or
  /// receives; for an all-reduce, the bytes of the bucket.
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
