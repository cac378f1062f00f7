#pragma once

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

namespace kolo {

/// Several jobs that share one capacity equally, such as the memory of a node: each of n advances
/// at `single` or `total / n` per unit of time, whichever is less.
///
///   single 1, total 1:   job a, work 2, from 0:    |--- 1 ---|--- 1/2 ---|        done at 3
///                        job b, work 2, from 1:              |--- 1/2 ---|- 1 -|  done at 4
///
/// All jobs advance alike, so one number holds their progress, and each ends when it reaches its
/// mark.
///
/// Threads: one. Times never fall from call to call.
class SharedCapacity {
 public:
  SharedCapacity(double single, double total) : single_(single), total_(total) {}

  void add(double now, double work, int job) {
    advance(now);
    marks_.emplace(progress_ + work, job);
  }
  bool empty() const { return marks_.empty(); }
  /// The time at which the first job is done, unless others come. Before: not empty.
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
  double progress_ = 0;  // of every job, since the beginning of time
  double at_ = 0;        // time of that progress
  std::priority_queue<Mark, std::vector<Mark>, std::greater<>> marks_;
};

}  // namespace kolo
