#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <ostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "comm/base/error.h"
#include "tests/comm/device/group_job.h"

namespace kolo::test {

inline std::ostream& operator<<(std::ostream& out, const GroupCase& tried) {
  return out << tried.name;
}

inline std::string group_case_name(const testing::TestParamInfo<GroupCase>& info) {
  return info.param.name;
}

inline constexpr std::chrono::seconds kAbortWithin{20};

/// The requirements for every DeviceCommunicator. To inherit the suite, a binary includes this
/// header and `device_communicator_parts_conformance.h` once each, and instantiates
/// `DeviceCommunicatorConformance`.
class DeviceCommunicatorConformance : public testing::TestWithParam<GroupCase> {
 protected:
  static constexpr std::size_t kMostCount = 1023;  // of one part

  void SetUp() override {
    if (const std::string why = GetParam().why_unavailable(); !why.empty()) GTEST_SKIP() << why;
    job_ = GetParam().make();
    const std::size_t capacity = kMostCount * sizeof(double) * static_cast<std::size_t>(size());
    for (const int rank : job_->ranks()) {
      desks_.emplace(rank, GroupDesk(job_->device(rank), group(rank), capacity));
    }
  }

  int size() const { return job_->size(); }
  DeviceCommunicator& group(int rank) { return *job_->group(rank); }
  GroupDesk& desk(int rank) { return desks_.at(rank); }

  void run_phase(const GroupJob::OfRank& start) {
    job_->run_phase(start, [this](int rank) { return desk(rank).finished->done(); });
  }

  /// Waits until the last call of `rank` is on its stream.
  void wait_until_launched(int rank) {
    while (group(rank).is_launching()) std::this_thread::yield();
  }

  /// Returns element `i` of a rank: a small number, so that sums and products are exact in every
  /// dtype. For averages it is a multiple of the group's size.
  double value(int rank, std::size_t i, ReduceOp op) const {
    const double small = static_cast<double>((i * 5 + static_cast<std::size_t>(rank) * 3) % 4);
    return op == ReduceOp::kAverage ? small * size() : small;
  }
  std::vector<double> values(int rank, std::size_t count, ReduceOp op) const {
    std::vector<double> all(count);
    for (std::size_t i = 0; i < count; ++i) all[i] = value(rank, i, op);
    return all;
  }

  /// Returns elements [first, first + count) of all ranks' values, combined by `op`.
  std::vector<double> combined(std::size_t first, std::size_t count, ReduceOp op) const {
    std::vector<double> result(count);
    for (std::size_t i = 0; i < count; ++i) {
      result[i] = value(0, first + i, op);
      for (int rank = 1; rank < size(); ++rank) {
        result[i] = combine(op, result[i], value(rank, first + i, op));
      }
      if (op == ReduceOp::kAverage) result[i] /= size();
    }
    return result;
  }

  static double combine(ReduceOp op, double a, double b) {
    switch (op) {
      case ReduceOp::kMin:
        return std::min(a, b);
      case ReduceOp::kMax:
        return std::max(a, b);
      case ReduceOp::kProd:
        return a * b;
      case ReduceOp::kSum:
      case ReduceOp::kAverage:
        return a + b;
      default:
        ADD_FAILURE() << "no operation of a device: " << to_string(op);
        return 0;
    }
  }

  /// Calls `test` for every dtype, operation, part count and placement of the result.
  template <typename Test>
  void for_all_collectives(Test&& test) {
    std::vector<DType> dtypes(std::begin(kNumberDTypes), std::end(kNumberDTypes));
    std::vector<ReduceOp> ops(std::begin(kNumberOps), std::end(kNumberOps));
    std::vector<std::size_t> part_counts{0, 1, 31, kMostCount};
    if (job_->is_slow()) {
      dtypes = {DType::kFloat32, DType::kBFloat16};
      ops = {ReduceOp::kSum, ReduceOp::kAverage};
      part_counts = {31, kMostCount};
    }
    for (const DType dtype : dtypes) {
      for (const ReduceOp op : ops) {
        for (const std::size_t count : part_counts) {
          for (const bool in_place : {false, true}) {
            SCOPED_TRACE(std::string(to_string(dtype)) + " " + std::string(to_string(op)) + " " +
                         std::to_string(count) + (in_place ? " in place" : ""));
            test(dtype, op, count, in_place);
          }
        }
      }
    }
  }

  /// Returns lists of part counts by rank: all different, empty on every second rank, all on the
  /// last rank, and all empty.
  std::vector<std::vector<std::size_t>> uneven_counts() const {
    const auto n = static_cast<std::size_t>(size());
    std::vector<std::size_t> growing, some(n), one(n);
    for (std::size_t i = 0; i < n; ++i) growing.push_back(31 + 7 * i);
    for (std::size_t i = 0; i < n; i += 2) some[i] = 100 + i;
    one.back() = kMostCount;
    return {growing, some, one, std::vector<std::size_t>(n)};
  }
  static std::size_t count_of(const std::vector<std::size_t>& counts, int rank) {
    return counts[static_cast<std::size_t>(rank)];
  }
  static std::size_t first_of(const std::vector<std::size_t>& counts, int rank) {
    return std::accumulate(counts.begin(), counts.begin() + rank, std::size_t{0});
  }
  static std::size_t sum_of(const std::vector<std::size_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  }

  std::unique_ptr<GroupJob> job_;
  std::map<int, GroupDesk> desks_;  ///< By rank. Destroyed before the groups.
};

TEST_P(DeviceCommunicatorConformance, EachRankKnowsItsPlace) {
  for (const int rank : job_->ranks()) {
    EXPECT_EQ(group(rank).rank(), rank);
    EXPECT_EQ(group(rank).size(), size());
    EXPECT_FALSE(group(rank).describe().empty());
    EXPECT_FALSE(group(rank).async_error());
  }
}

TEST_P(DeviceCommunicatorConformance, AReduceScatterGivesEachRankItsPart) {
  const auto n = static_cast<std::size_t>(size());
  for_all_collectives([&](DType dtype, ReduceOp op, std::size_t count, bool in_place) {
    const std::size_t part_bytes = count * size_of(dtype);
    run_phase([&](int rank) {
      GroupDesk& mine = desk(rank);
      write_values(mine.given, dtype, values(rank, n * count, op));
      mine.upload(mine.source, n * part_bytes);
      const std::size_t offset = in_place ? static_cast<std::size_t>(rank) * part_bytes : 0;
      const DeviceMemory& result = in_place ? mine.source : mine.target;
      group(rank).reduce_scatter(*mine.stream, mine.source.data(), result.data() + offset, count,
                                 dtype, op);
      wait_until_launched(rank);
      mine.download(result, offset, part_bytes);
    });
    for (const int rank : job_->ranks()) {
      EXPECT_EQ(read_values(desk(rank).taken, dtype, count),
                combined(static_cast<std::size_t>(rank) * count, count, op))
          << "rank " << rank;
    }
  });
}

TEST_P(DeviceCommunicatorConformance, AnAllGatherGivesEveryRankAllParts) {
  const auto n = static_cast<std::size_t>(size());
  for_all_collectives([&](DType dtype, ReduceOp op, std::size_t count, bool in_place) {
    if (op != ReduceOp::kSum) return;  // an all-gather combines nothing
    const std::size_t part_bytes = count * size_of(dtype);
    run_phase([&](int rank) {
      GroupDesk& mine = desk(rank);
      write_values(mine.given, dtype, values(rank, n * count, op));
      mine.upload(mine.source, n * part_bytes);
      const DeviceMemory& result = in_place ? mine.source : mine.target;
      group(rank).all_gather(*mine.stream,
                             mine.source.data() + static_cast<std::size_t>(rank) * part_bytes,
                             result.data(), count, dtype);
      wait_until_launched(rank);
      mine.download(result, 0, n * part_bytes);
    });
    std::vector<double> expected(n * count);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expected[i] = value(static_cast<int>(i / count), i, op);
    }
    for (const int rank : job_->ranks()) {
      EXPECT_EQ(read_values(desk(rank).taken, dtype, n * count), expected) << "rank " << rank;
    }
  });
}

TEST_P(DeviceCommunicatorConformance, AnAllReduceGivesEveryRankTheSame) {
  for_all_collectives([&](DType dtype, ReduceOp op, std::size_t count, bool in_place) {
    run_phase([&](int rank) {
      GroupDesk& mine = desk(rank);
      const DeviceMemory& result = in_place ? mine.source : mine.target;
      write_values(mine.given, dtype, values(rank, count, op));
      mine.upload(mine.source, count * size_of(dtype));
      group(rank).all_reduce(*mine.stream, mine.source.data(), result.data(), count, dtype, op);
      wait_until_launched(rank);
      mine.download(result, 0, count * size_of(dtype));
    });
    for (const int rank : job_->ranks()) {
      EXPECT_EQ(read_values(desk(rank).taken, dtype, count), combined(0, count, op))
          << "rank " << rank;
    }
  });
}

TEST_P(DeviceCommunicatorConformance, SumsThatMustBeRoundedHaveTheSameBytesOnAllRanksAndAgain) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    SCOPED_TRACE(to_string(dtype));
    std::vector<std::string> first;
    for (int run = 0; run < 2; ++run) {
      run_phase([&](int rank) {
        GroupDesk& mine = desk(rank);
        std::mt19937 generator(static_cast<std::uint32_t>(rank));
        std::uniform_real_distribution<double> any(-1.0, 1.0);
        std::vector<double> random(kMostCount);
        for (double& number : random) number = any(generator);
        write_values(mine.given, dtype, random);
        mine.upload(mine.source, kMostCount * size_of(dtype));
        group(rank).all_reduce(*mine.stream, mine.source.data(), mine.source.data(), kMostCount,
                               dtype, ReduceOp::kSum);
        wait_until_launched(rank);
        mine.download(mine.source, 0, kMostCount * size_of(dtype));
      });
      const std::vector<std::string> bytes = job_->exchange([&](int rank) {
        return std::string(reinterpret_cast<const char*>(desk(rank).taken.data()),
                           kMostCount * size_of(dtype));
      });
      for (const std::string& of_rank : bytes) EXPECT_EQ(of_rank, bytes.front());
      if (run == 0) first = bytes;
      EXPECT_EQ(bytes, first) << "another run of the same job";
    }
  }
}

TEST_P(DeviceCommunicatorConformance, CollectivesOfTwoBuffersOverlapOnStreamsThatEventsOrder) {
  // A buffer's upload, reduce-scatter, all-gather and download run on separate streams.
  struct Lines {
    std::unique_ptr<Stream> up, scatter, gather, down;
    std::vector<std::unique_ptr<Event>> events;
  };
  constexpr std::size_t kRounds = 4;
  const auto n = static_cast<std::size_t>(size());
  const std::size_t count = kMostCount / 2;
  const std::size_t part_bytes = count * sizeof(float);
  std::map<int, Lines> lines;
  std::map<int, std::vector<DeviceMemory>> results;
  for (const int rank : job_->ranks()) {
    Device& device = job_->device(rank);
    Lines& mine = lines[rank];
    mine = {
        device.make_stream(), device.make_stream(), device.make_stream(), device.make_stream(), {}};
    for (std::size_t i = 0; i < 4 * kRounds; ++i) mine.events.push_back(device.make_event());
    for (std::size_t round = 0; round < kRounds; ++round) {
      results[rank].push_back(device.allocate(n * part_bytes, MemoryKind::kPinned));
    }
  }
  run_phase([&](int rank) {
    GroupDesk& desk_of_rank = desk(rank);
    Lines& mine = lines[rank];
    write_values(desk_of_rank.given, DType::kFloat32, values(rank, n * count, ReduceOp::kSum));
    for (std::size_t round = 0; round < kRounds; ++round) {
      const DeviceMemory& buffer = round % 2 == 0 ? desk_of_rank.source : desk_of_rank.target;
      std::byte* const part = buffer.data() + static_cast<std::size_t>(rank) * part_bytes;
      Event& uploaded = *mine.events[4 * round];
      Event& scattered = *mine.events[4 * round + 1];
      Event& gathered = *mine.events[4 * round + 2];
      Event& downloaded = *mine.events[4 * round + 3];
      if (round >= 2) mine.up->wait(*mine.events[4 * (round - 2) + 3]);  // until the buffer is free
      GroupDesk::copy(*mine.up, buffer, desk_of_rank.given, n * part_bytes);
      mine.up->record(uploaded);
      mine.scatter->wait(uploaded);
      group(rank).reduce_scatter(*mine.scatter, buffer.data(), part, count, DType::kFloat32,
                                 ReduceOp::kSum);
      wait_until_launched(rank);
      mine.scatter->record(scattered);
      mine.gather->wait(scattered);
      group(rank).all_gather(*mine.gather, part, buffer.data(), count, DType::kFloat32);
      wait_until_launched(rank);
      mine.gather->record(gathered);
      mine.down->wait(gathered);
      GroupDesk::copy(*mine.down, results[rank][round], buffer, n * part_bytes);
      mine.down->record(downloaded);
    }
    mine.down->record(*desk_of_rank.finished);
  });
  for (const int rank : job_->ranks()) {
    for (const DeviceMemory& result : results[rank]) {
      EXPECT_EQ(read_values(result, DType::kFloat32, n * count),
                combined(0, n * count, ReduceOp::kSum))
          << "rank " << rank;
    }
  }
}

TEST_P(DeviceCommunicatorConformance, AnAbortReleasesStreamsThatWaitForAPeer) {
  if (size() == 1) GTEST_SKIP() << "needs a peer";
  job_->use_up();
  const int absent = size() - 1;
  job_->run_phase(
      [&](int rank) {
        if (rank == absent) return;
        GroupDesk& mine = desk(rank);
        group(rank).all_reduce(*mine.stream, mine.source.data(), mine.source.data(), 100,
                               DType::kFloat32, ReduceOp::kSum);
        mine.stream->record(*mine.finished);
      },
      [](int) { return true; });
  for (const int rank : job_->ranks()) {
    EXPECT_EQ(desk(rank).finished->done(), rank == absent) << "rank " << rank;
  }
  run_phase([&](int rank) {
    EXPECT_TRUE(group(rank).abort(kAbortWithin)) << "rank " << rank;
    EXPECT_TRUE(group(rank).abort(kAbortWithin)) << "once more changes nothing";
  });
  run_phase([&](int rank) {  // calls have no effect after an abort
    GroupDesk& mine = desk(rank);
    group(rank).all_reduce(*mine.stream, mine.source.data(), mine.source.data(), 100,
                           DType::kFloat32, ReduceOp::kSum);
    mine.stream->record(*mine.finished);
    EXPECT_EQ(group(rank).finalize(), CommunicatorState::kAborted);
  });
}

TEST_P(DeviceCommunicatorConformance, AnOrderlyEndComesBehindAllCalls) {
  job_->use_up();
  std::map<int, CommunicatorState> states;
  for (const int rank : job_->ranks()) states[rank] = CommunicatorState::kActive;
  job_->run_phase(
      [&](int rank) {
        GroupDesk& mine = desk(rank);
        write_values(mine.given, DType::kInt32, values(rank, kMostCount, ReduceOp::kSum));
        mine.upload(mine.source, kMostCount * sizeof(std::int32_t));
        group(rank).all_reduce(*mine.stream, mine.source.data(), mine.source.data(), kMostCount,
                               DType::kInt32, ReduceOp::kSum);
        wait_until_launched(rank);
        mine.download(mine.source, 0, kMostCount * sizeof(std::int32_t));
      },
      [&](int rank) {
        CommunicatorState& state = states.at(rank);
        state = group(rank).finalize();
        return state != CommunicatorState::kFinalizing && desk(rank).finished->done();
      });
  for (const int rank : job_->ranks()) {
    EXPECT_EQ(states.at(rank), CommunicatorState::kFinalized) << "rank " << rank;
    EXPECT_EQ(group(rank).finalize(), CommunicatorState::kFinalized);
    EXPECT_FALSE(group(rank).async_error());
    EXPECT_TRUE(group(rank).abort(kAbortWithin)) << "nothing is left to abort";
    EXPECT_EQ(group(rank).finalize(), CommunicatorState::kFinalized);
    EXPECT_EQ(read_values(desk(rank).taken, DType::kInt32, kMostCount),
              combined(0, kMostCount, ReduceOp::kSum));
    EXPECT_THROW(group(rank).all_reduce(*desk(rank).stream, desk(rank).source.data(),
                                        desk(rank).source.data(), 1, DType::kInt32, ReduceOp::kSum),
                 UsageError);
  }
}

TEST_P(DeviceCommunicatorConformance, MemoryMayOutliveItsGroup) {
  job_->use_up();
  for (const int rank : job_->ranks()) {
    DeviceMemory memory = group(rank).allocate(1000);
    EXPECT_EQ(memory.bytes(), 1000U);
    EXPECT_EQ(memory.kind(), MemoryKind::kDevice);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % 256, 0U);
    desk(rank).target = std::move(memory);
  }
  run_phase([&](int rank) { job_->group(rank).reset(); });
  run_phase([&](int rank) {
    GroupDesk& mine = desk(rank);
    write_values(mine.given, DType::kUInt8, {1, 2, 3});
    mine.upload(mine.target, 3);
    mine.download(mine.target, 0, 3);
  });
  for (const int rank : job_->ranks()) {
    EXPECT_EQ(read_values(desk(rank).taken, DType::kUInt8, 3), (std::vector<double>{1, 2, 3}));
  }
}

}  // namespace kolo::test
