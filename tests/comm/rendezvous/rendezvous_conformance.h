#pragma once

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "comm/rendezvous/rendezvous.h"

namespace kolo::testing {

/// Returns the bytes that `rank` contributes in `round`. Lengths differ between ranks and rounds.
inline std::string contribution(int rank, unsigned round, std::size_t most_bytes) {
  constexpr std::size_t kPattern = 251;
  std::mt19937 random(round * 1000U + static_cast<unsigned>(rank));
  const std::size_t length = random() % (most_bytes + 1);
  std::string pattern(kPattern, '\0');
  for (char& byte : pattern) byte = static_cast<char>(random() & 0xff);
  std::string bytes;
  while (bytes.size() < length) bytes += pattern;
  bytes.resize(length);
  return bytes;
}

/// Tests the requirements for every rendezvous. All ranks of the job call it together, each on a
/// separate thread or process.
inline void expect_conforming(Rendezvous& rendezvous, int expected_rank, int expected_size) {
  ASSERT_EQ(rendezvous.rank(), expected_rank);
  ASSERT_EQ(rendezvous.size(), expected_size);
  unsigned round = 0;
  // Empty, short, and longer than any socket buffer.
  for (const std::size_t most_bytes : {0U, 1U, 7U, 4096U, 70'000U, 3'000'000U, 0U, 100U, 100U}) {
    const std::vector<std::string> all =
        rendezvous.all_gather(contribution(expected_rank, round, most_bytes));
    ASSERT_EQ(all.size(), static_cast<std::size_t>(expected_size));
    for (int rank = 0; rank < expected_size; ++rank) {
      // EXPECT_EQ would print megabytes.
      ASSERT_TRUE(all[static_cast<std::size_t>(rank)] == contribution(rank, round, most_bytes))
          << "what rank " << rank << " gave in round " << round << ", at rank " << expected_rank;
    }
    ++round;
  }
}

}  // namespace kolo::testing
