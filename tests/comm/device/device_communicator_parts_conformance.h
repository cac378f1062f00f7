#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/comm/device/device_communicator_conformance.h"

namespace kolo::test {

TEST_P(DeviceCommunicatorConformance, SumsInPartsOfAnyLengthsComeToTheirRanks) {
  for (const std::vector<std::size_t>& counts : uneven_counts()) {
    const std::size_t all = sum_of(counts);
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      for (const bool in_place : {false, true}) {
        SCOPED_TRACE(std::string(to_string(dtype)) + (in_place ? " in place" : ""));
        run_phase([&](int rank) {
          GroupDesk& mine = desk(rank);
          write_values(mine.given, dtype, values(rank, all, ReduceOp::kMax));
          mine.upload(mine.source, all * size_of(dtype));
          const std::size_t offset = in_place ? first_of(counts, rank) * size_of(dtype) : 0;
          const DeviceMemory& result = in_place ? mine.source : mine.target;
          const GroupTensor tensor{mine.source.data(), result.data() + offset, counts};
          group(rank).reduce_parts(*mine.stream, {&tensor, 1}, dtype, ReduceOp::kMax);
          wait_until_launched(rank);
          mine.download(result, offset, count_of(counts, rank) * size_of(dtype));
        });
        for (const int rank : job_->ranks()) {
          EXPECT_EQ(read_values(desk(rank).taken, dtype, count_of(counts, rank)),
                    combined(first_of(counts, rank), count_of(counts, rank), ReduceOp::kMax))
              << "rank " << rank;
        }
      }
    }
  }
}

TEST_P(DeviceCommunicatorConformance, PartsOfAnyLengthsComeToEveryRank) {
  for (const std::vector<std::size_t>& counts : uneven_counts()) {
    const std::size_t all = sum_of(counts);
    std::vector<double> expected;
    for (int rank = 0; rank < size(); ++rank) {
      for (std::size_t i = 0; i < count_of(counts, rank); ++i) {
        expected.push_back(value(rank, expected.size(), ReduceOp::kSum));
      }
    }
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      for (const bool in_place : {false, true}) {
        SCOPED_TRACE(std::string(to_string(dtype)) + (in_place ? " in place" : ""));
        run_phase([&](int rank) {
          GroupDesk& mine = desk(rank);
          write_values(mine.given, dtype, values(rank, all, ReduceOp::kSum));
          mine.upload(mine.source, all * size_of(dtype));
          const DeviceMemory& result = in_place ? mine.source : mine.target;
          const std::byte* const part =
              mine.source.data() + first_of(counts, rank) * size_of(dtype);
          const GroupTensor tensor{part, result.data(), counts};
          group(rank).gather_parts(*mine.stream, {&tensor, 1}, dtype);
          wait_until_launched(rank);
          mine.download(result, 0, all * size_of(dtype));
        });
        for (const int rank : job_->ranks()) {
          EXPECT_EQ(read_values(desk(rank).taken, dtype, all), expected) << "rank " << rank;
        }
      }
    }
  }
}

TEST_P(DeviceCommunicatorConformance, TensorsOfOneLaunchKeepApart) {
  const std::vector<std::vector<std::size_t>> lists = uneven_counts();
  std::size_t all = 0;
  for (const std::vector<std::size_t>& counts : lists) all += sum_of(counts);
  for (const bool sums : {true, false}) {
    SCOPED_TRACE(sums ? "sums" : "copies");
    // All tensors are adjacent in the source and in the target.
    run_phase([&](int rank) {
      GroupDesk& mine = desk(rank);
      write_values(mine.given, DType::kFloat32, values(rank, all, ReduceOp::kMax));
      mine.upload(mine.source, all * sizeof(float));
      mine.upload(mine.target, all * sizeof(float));
      std::vector<GroupTensor> tensors;
      std::size_t first = 0;
      for (const std::vector<std::size_t>& counts : lists) {
        const std::size_t part = (first + first_of(counts, rank)) * sizeof(float);
        const std::size_t whole = first * sizeof(float);
        tensors.push_back({.source = mine.source.data() + (sums ? whole : part),
                           .target = mine.target.data() + (sums ? part : whole),
                           .counts = counts});
        first += sum_of(counts);
      }
      if (sums) {
        group(rank).reduce_parts(*mine.stream, tensors, DType::kFloat32, ReduceOp::kMax);
        wait_until_launched(rank);
      } else {
        group(rank).gather_parts(*mine.stream, tensors, DType::kFloat32);
        wait_until_launched(rank);
      }
      mine.download(mine.target, 0, all * sizeof(float));
    });
    for (const int rank : job_->ranks()) {
      std::vector<double> expected = values(rank, all, ReduceOp::kMax);
      std::size_t first = 0;
      for (const std::vector<std::size_t>& counts : lists) {
        for (int owner = 0; owner < size(); ++owner) {
          for (std::size_t i = 0; i < count_of(counts, owner); ++i, ++first) {
            if (sums && owner == rank) {
              expected[first] = combined(first, 1, ReduceOp::kMax).front();
            } else if (!sums) {
              expected[first] = value(owner, first, ReduceOp::kMax);
            }
          }
        }
      }
      EXPECT_EQ(read_values(desk(rank).taken, DType::kFloat32, all), expected) << "rank " << rank;
    }
  }
}

TEST_P(DeviceCommunicatorConformance, AnExchangeGivesEachRankWhatTheOthersHaveForIt) {
  const auto n = static_cast<std::size_t>(size());
  constexpr std::size_t kTensors = 2;
  // Returns the elements that rank `from` sends to rank `to`, which may be the same. Some are zero.
  const auto count = [](std::size_t tensor, std::size_t from, std::size_t to) {
    return (from * 5 + to * 3 + tensor) % 7 * 5;
  };
  run_phase([&](int rank) {
    const auto me = static_cast<std::size_t>(rank);
    GroupDesk& mine = desk(rank);
    std::vector<double> given;
    std::vector<GroupPart> sent, received;
    std::size_t arrived = 0;
    for (std::size_t i = 0; i < kTensors * n; ++i) {
      const std::size_t tensor = i / n, peer = i % n;
      const std::size_t gives = count(tensor, me, peer), gets = count(tensor, peer, me);
      sent.push_back({mine.source.data() + given.size() * sizeof(float), gives});
      given.insert(given.end(), gives, static_cast<double>(me * 100 + peer * 10 + tensor));
      received.push_back({mine.target.data() + arrived * sizeof(float), gets});
      arrived += gets;
    }
    write_values(mine.given, DType::kFloat32, given);
    mine.upload(mine.source, given.size() * sizeof(float));
    group(rank).exchange(*mine.stream, sent, received, DType::kFloat32);
    wait_until_launched(rank);
    mine.download(mine.target, 0, arrived * sizeof(float));
  });
  for (const int rank : job_->ranks()) {
    const auto me = static_cast<std::size_t>(rank);
    std::vector<double> expected;
    for (std::size_t i = 0; i < kTensors * n; ++i) {
      const std::size_t tensor = i / n, peer = i % n;
      expected.insert(expected.end(), count(tensor, peer, me),
                      static_cast<double>(peer * 100 + me * 10 + tensor));
    }
    EXPECT_EQ(read_values(desk(rank).taken, DType::kFloat32, expected.size()), expected)
        << "rank " << rank;
  }
}

}  // namespace kolo::test
