#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/comm/device/local_group_conformance.h"

namespace kolo::test {

TEST_P(LocalGroupConformance, SumsInPartsOfAnyLengthsComeToTheirRanks) {
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
          group(rank).reduce_parts(*mine.stream, mine.source.data(), result.data() + offset, counts,
                                   dtype, ReduceOp::kMax);
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

TEST_P(LocalGroupConformance, PartsOfAnyLengthsComeToEveryRank) {
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
          group(rank).gather_parts(*mine.stream, part, result.data(), counts, dtype);
          mine.download(result, 0, all * size_of(dtype));
        });
        for (const int rank : job_->ranks()) {
          EXPECT_EQ(read_values(desk(rank).taken, dtype, all), expected) << "rank " << rank;
        }
      }
    }
  }
}

TEST_P(LocalGroupConformance, AnExchangeGivesEachRankWhatTheOthersHaveForIt) {
  const auto n = static_cast<std::size_t>(size());
  // From rank s to rank r; what is for oneself, too. Some have nothing for each other.
  const auto count = [](std::size_t from, std::size_t to) { return (from * 5 + to * 3) % 7 * 11; };
  run_phase([&](int rank) {
    const auto me = static_cast<std::size_t>(rank);
    GroupDesk& mine = desk(rank);
    std::vector<double> given;
    std::vector<GroupPart> sent, received;
    std::size_t arrived = 0;
    for (std::size_t peer = 0; peer < n; ++peer) {
      sent.push_back({mine.source.data() + given.size() * sizeof(float), count(me, peer)});
      given.insert(given.end(), count(me, peer), static_cast<double>(me * 100 + peer));
      received.push_back({mine.target.data() + arrived * sizeof(float), count(peer, me)});
      arrived += count(peer, me);
    }
    write_values(mine.given, DType::kFloat32, given);
    mine.upload(mine.source, given.size() * sizeof(float));
    group(rank).exchange(*mine.stream, sent, received, DType::kFloat32);
    mine.download(mine.target, 0, arrived * sizeof(float));
  });
  for (const int rank : job_->ranks()) {
    const auto me = static_cast<std::size_t>(rank);
    std::vector<double> expected;
    for (std::size_t peer = 0; peer < n; ++peer) {
      expected.insert(expected.end(), count(peer, me), static_cast<double>(peer * 100 + me));
    }
    EXPECT_EQ(read_values(desk(rank).taken, DType::kFloat32, expected.size()), expected)
        << "rank " << rank;
  }
}

}  // namespace kolo::test
