#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/comm/device/group_job.h"
#include "tests/support/device/host_communicator.h"
#include "tests/support/device/host_device.h"
#include "tests/support/rank_harness.h"

namespace kolo::test {

/// A job that runs all ranks of a host group. A test must destroy its streams before the job.
class HostGroupJob : public GroupJob {
 public:
  /// Wraps each rank's group for a test.
  using Wrap =
      std::function<std::unique_ptr<DeviceCommunicator>(std::unique_ptr<DeviceCommunicator>)>;

  int size() const override { return hub_.size(); }
  std::vector<int> ranks() const override { return numbers(size()); }
  std::unique_ptr<DeviceCommunicator>& group(int rank) override {
    return groups_[static_cast<std::size_t>(rank)];
  }
  std::vector<std::string> exchange(const std::function<std::string(int)>& mine) override {
    std::vector<std::string> all;
    for (const int rank : ranks()) all.push_back(mine(rank));
    return all;
  }

 protected:
  explicit HostGroupJob(int size) : hub_(numbers(size)) {}

  void open(int rank, Device& device, const Wrap& wrap) {
    std::unique_ptr<DeviceCommunicator> group = hub_.group(rank, device);
    groups_.push_back(wrap ? wrap(std::move(group)) : std::move(group));
  }

  static std::vector<int> numbers(int size) {
    std::vector<int> all(static_cast<std::size_t>(size));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

 private:
  HostCommunicatorHub hub_;
  std::vector<std::unique_ptr<DeviceCommunicator>> groups_;
};

/// A job in which each rank and each stream has a thread.
class ThreadedGroupJob final : public HostGroupJob {
 public:
  explicit ThreadedGroupJob(int size, const Wrap& wrap = {}) : HostGroupJob(size) {
    for (int rank = 0; rank < size; ++rank) {
      devices_.push_back(std::make_unique<HostDevice>());
      open(rank, *devices_.back(), wrap);
    }
  }

  Device& device(int rank) override { return *devices_[static_cast<std::size_t>(rank)]; }

  void run_phase(const OfRank& start, const std::function<bool(int)>& done) override {
    run_ranks(size(), [&](const RankRun& run) {
      start(run.rank());
      run.poll_until([] { return false; }, [&] { return done(run.rank()); });
    });
  }

 private:
  std::vector<std::unique_ptr<HostDevice>> devices_;
};

/// A job that runs all ranks and streams in one thread, in a seeded order.
class SeededGroupJob final : public HostGroupJob {
 public:
  SeededGroupJob(int size, std::uint64_t seed, const Wrap& wrap = {})
      : HostGroupJob(size), seed_(seed), generator_(seed), device_(seed) {
    for (int rank = 0; rank < size; ++rank) open(rank, device_, wrap);
  }

  Device& device(int) override { return device_; }

  void run_phase(const OfRank& start, const std::function<bool(int)>& done) override {
    std::vector<int> order = ranks();
    std::shuffle(order.begin(), order.end(), generator_);
    for (const int rank : order) {
      start(rank);
      for (std::uint64_t steps = generator_() % 8; steps > 0; --steps) device_.step();
    }
    const auto all_done = [&] {
      bool all = true;
      for (const int rank : order) all &= done(rank);  // calls `done` for all ranks
      return all;
    };
    int idle = 0;
    while (!all_done()) {
      idle = device_.step() ? 0 : idle + 1;
      if (idle == kMostIdleRounds) {
        throw std::runtime_error("seed " + std::to_string(seed_) + ": nothing moves any more");
      }
    }
  }

  /// Completes one operation of a stream. Returns false if no operation can complete.
  bool step() { return device_.step(); }
  /// Runs streams until no operation can complete.
  void settle() { device_.settle(); }

 private:
  static constexpr int kMostIdleRounds = 1000;  // some operations take several polls

  const std::uint64_t seed_;
  std::mt19937_64 generator_;
  SeededHostDevice device_;
};

}  // namespace kolo::test
