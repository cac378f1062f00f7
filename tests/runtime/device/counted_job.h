#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/runtime/calls/collective_calls.h"
#include "tests/support/engine_job.h"
#include "tests/support/faulty_communicator.h"

namespace kolo::test {

/// Counts the calls of rank 0 to the collectives of one group: "world" or the given members. It
/// must outlive the job.
class CallCounter {
 public:
  explicit CallCounter(std::string members = "world") : members_(std::move(members)) {}

  /// A test passes this function to `JobDevices::wrap`.
  std::unique_ptr<DeviceCommunicator> wrap(int rank, const std::string& members,
                                           std::unique_ptr<DeviceCommunicator> group) {
    if (rank != 0 || members != members_) return group;
    auto counted = std::make_unique<FaultyCommunicator>(std::move(group), FaultPlan{});
    group_ = counted.get();
    return counted;
  }

  /// Returns the number of calls since the previous `calls()`.
  std::uint64_t calls() {
    const std::uint64_t now = group_->calls();
    return now - std::exchange(seen_, now);
  }

 private:
  const std::string members_;
  FaultyCommunicator* group_ = nullptr;
  std::uint64_t seen_ = 0;
};

/// A job that counts the calls of rank 0 to the device's library.
class CountedJob {
 public:
  explicit CountedJob(const std::vector<int>& nodes, const Options& options = {})
      : job(ProcessGrid::with_node_sizes(nodes), options, 7,
            JobDevices{.holds_buffers = true,
                       .wrap = [this](int rank, const std::string& of,
                                      std::unique_ptr<DeviceCommunicator> group) {
                         return node_.wrap(rank, of, world_.wrap(rank, of, std::move(group)));
                       }}) {}

  int ranks() const { return job.world_size(); }

  /// Runs the operation that `make` returns for each rank. The test fails if an operation fails.
  void run(const std::function<std::shared_ptr<Operation>(const OperationCalls&, int rank)>& make) {
    std::vector<std::shared_ptr<Operation>> operations;
    for (int rank = 0; rank < ranks(); ++rank) {
      OperationPool pool;
      operations.push_back(job.submit(rank, *make(OperationCalls(pool, rank, ranks()), rank)));
    }
    job.finish(operations);
    for (const auto& operation : operations) ASSERT_EQ(error_of(*operation), "");
  }

  /// Return the calls to the collectives of all ranks, and of the node, since the previous query.
  std::uint64_t calls() { return world_.calls(); }
  std::uint64_t calls_in_node() { return node_.calls(); }

 private:
  CallCounter world_, node_{"node 0"};

 public:
  EngineJob job;
};

/// Runs each collective once out of place, and once in place.
inline void run_all(CountedJob& counted,
                    const std::function<void(const std::string&)>& after_each) {
  for (const CollectiveCall& call : collective_calls()) {
    const std::vector<std::size_t> counts(static_cast<std::size_t>(counted.ranks()), 50);
    for (const bool in_place : {false, true}) {
      std::vector<CollectiveBuffers> buffers;
      for (int rank = 0; rank < counted.ranks(); ++rank) {
        buffers.push_back(buffers_for(call.spec(counts, 0), rank, in_place));
      }
      const std::string name = call.name + (in_place ? " in place" : "");
      counted.run([&](const OperationCalls& calls, int rank) {
        return call.make(calls, name, buffers[static_cast<std::size_t>(rank)], counts, 0, in_place);
      });
      for (const auto& mine : buffers) EXPECT_EQ(mine.result, mine.expected) << name;
      after_each(name);
    }
  }
}

}  // namespace kolo::test
