#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "comm/transport/transport.h"
#include "tests/support/rank_harness.h"
#include "topology/process_grid.h"

namespace kolo::test {

/// The transports of all ranks of a job, and the state that they share.
struct TransportJob {
  std::shared_ptr<void> shared;
  std::vector<std::unique_ptr<Transport>> ranks;
};

/// One case of the suite: an implementation, the nodes on which it is tested, and the polling
/// threads.
struct TransportCase {
  std::string name;
  std::vector<int> node_sizes;
  bool one_thread = false;  ///< Whether one thread polls all ranks, not one thread each.
  std::function<TransportJob(const ProcessGrid&, const TransportLimits&)> make;
};

inline std::ostream& operator<<(std::ostream& out, const TransportCase& tried) {
  return out << tried.name;
}

inline constexpr TransportLimits kSuiteLimits{
    .arena_bytes = std::size_t{1} << 16, .flags_per_peer = 64, .counters = 16};

/// The requirements for every transport. A binary inherits the suite if it includes this header and
/// `transport_conformance_tests.h`, and instantiates `TransportConformance`.
class TransportConformance : public testing::TestWithParam<TransportCase> {
 protected:
  TransportConformance()
      : grid_(ProcessGrid::with_node_sizes(GetParam().node_sizes)),
        job_(GetParam().make(grid_, kSuiteLimits)) {}

  /// Ends all ranks at the same time, like the agreed end of a real job.
  ~TransportConformance() override {
    run_ranks(world_size(), [&](const RankRun& run) { rank(run.rank()).shutdown(true); });
  }

  int world_size() const { return grid_.world_size(); }
  Transport& rank(int index) { return *job_.ranks[static_cast<std::size_t>(index)]; }

  /// Calls `start` once for every rank, then polls all ranks until `done` returns true for each.
  void run_phase(const std::function<void(int rank)>& start,
                 const std::function<bool(int rank)>& done) {
    if (GetParam().one_thread) {
      for (int i = 0; i < world_size(); ++i) start(i);
      const std::atomic<bool> never{false};
      const RankRun run(0, 1, never);
      const auto poll_all = [&] {
        bool moved = false;
        for (int i = 0; i < world_size(); ++i) moved |= rank(i).poll();
        return moved;
      };
      const auto all_done = [&] {
        bool all = true;
        for (int i = 0; i < world_size(); ++i) all &= done(i);  // calls `done` for all ranks
        return all;
      };
      run.poll_until(poll_all, all_done);
      return;
    }
    // A rank that is done continues to poll, because other ranks may need it.
    std::atomic<int> finished{0};
    run_ranks(world_size(), [&](const RankRun& run) {
      const int self = run.rank();
      start(self);
      const auto poll = [&] { return rank(self).poll(); };
      run.poll_until(poll, [&] { return done(self); });
      ++finished;
      run.poll_until(poll, [&] { return finished == world_size(); });
    });
  }

  /// Exchanges one control frame between all pairs, so that every peer is connected.
  void connect_all();

  ProcessGrid grid_;
  TransportJob job_;
};

/// Returns contents that identify sender, receiver and size.
inline std::vector<std::byte> pattern(int from, int to, std::size_t bytes) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    data[i] = static_cast<std::byte>(i * 31 + i / 251 + static_cast<std::size_t>(from * 7 + to));
  }
  return data;
}

inline bool is_done(const std::vector<Completion>& completions) {
  for (const Completion& completion : completions) {
    if (completion.state != Completion::State::kDone) return false;
  }
  return true;
}

/// Returns the tag of a message with this sender and number. Other fields are 0.
inline Tag numbered(int source, std::size_t ordinal) {
  return {.source = static_cast<std::uint32_t>(source),
          .ordinal = static_cast<std::uint32_t>(ordinal)};
}

inline std::string case_name(const testing::TestParamInfo<TransportCase>& info) {
  return info.param.name + (info.param.one_thread ? "_one_thread" : "_threads");
}

}  // namespace kolo::test
