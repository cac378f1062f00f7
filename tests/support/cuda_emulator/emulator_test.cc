// Tests the results of the emulator, and each mistake that it must detect.

#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <numeric>

#include "tests/support/cuda_emulator/block.h"
#include "tests/support/cuda_emulator/device.h"
#include "tests/support/cuda_emulator/sample_kernels.h"

namespace kolo::emulator {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<std::uint32_t> counting(std::size_t count) {
  std::vector<std::uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 1u);
  return numbers;
}

TEST(CudaEmulator, BlocksAddUpThroughSharedMemoryInEveryOrder) {
  const auto numbers = counting(9 * 96);
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    Device device({.seed = seed, .resident_blocks = 1 + seed % 4});
    std::array<std::uint32_t, 9> sums = {};
    sample::sum_blocks(numbers, 96, sums.data());
    for (std::uint32_t b = 0; b < 9; ++b) {
      EXPECT_EQ(sums[b], 96 * (96 * b) + 96 * 97 / 2) << "seed " << seed;
    }
  }
}

TEST(CudaEmulator, ForgottenBarrierGivesAnotherResult) {
  const auto numbers = counting(96);
  Device device({.seed = 1});
  std::uint32_t sum = 0;
  sample::sum_blocks_without_barrier(numbers, 96, &sum);
  EXPECT_NE(sum, 96u * 97 / 2);
}

TEST(CudaEmulator, SeedDecidesTheOrderOfBlocks) {
  std::set<std::vector<std::uint32_t>> orders;
  for (const std::uint32_t seed : {1u, 2u, 3u, 3u}) {
    Device device({.seed = seed});
    std::vector<std::uint32_t> order(16);
    std::uint32_t counter = 0;
    sample::record_order(16, &counter, order.data());
    orders.insert(order);
    std::ranges::sort(order);
    for (std::uint32_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], i);
  }
  EXPECT_EQ(orders.size(), 3u);
}

TEST(CudaEmulator, ThreadsAndBlocksHaveThreeIndices) {
  Device device({.seed = 1});
  std::vector<std::uint32_t> places(6 * 6 * 4);
  sample::record_places(places.data());
  for (std::uint32_t i = 0; i < places.size(); ++i) {
    EXPECT_EQ(places[i], i / 24 * 100 + i / 4 % 6 * 10 + i % 4);
  }
}

TEST(CudaEmulator, LanesOfAWarpExchangeValues) {
  Device device({.seed = 1});
  std::array<unsigned, 64> ballots = {};
  std::array<double, 64> across = {};
  sample::exchange_lanes(ballots.data(), across.data());
  for (unsigned i = 0; i < 64; ++i) {
    EXPECT_EQ(ballots[i], 0xaaaaaaaau);
    EXPECT_EQ(across[i], 0.5 + (i ^ 16));
  }
}

TEST(CudaEmulator, SharedMemoryBeginsAsNaN) {
  Device device({.seed = 1});
  float value = 0.0f;
  sample::read_unwritten(&value);
  EXPECT_TRUE(std::isnan(value));
}

TEST(CudaEmulator, ReportsBarriersThatNotAllThreadsReach) {
  Device device({.seed = 1});
  EXPECT_THAT(sample::barrier_for_some,
              ThrowsMessage<Fault>(AllOf(HasSubstr("32 of 64 have ended"),
                                         HasSubstr("32 wait for the whole block at"),
                                         HasSubstr("sample_kernels.cu:44"))));
  EXPECT_THAT(sample::barriers_at_two_places,
              ThrowsMessage<Fault>(
                  AllOf(HasSubstr("sample_kernels.cu:49"), HasSubstr("sample_kernels.cu:51"))));
  EXPECT_THAT(sample::ballot_without_all_lanes,
              ThrowsMessage<Fault>(HasSubstr("31 wait for all of warp 0")));
  EXPECT_THROW(sample::ballot_of_half_a_warp(), Fault);
}

// AddressSanitizer would end the program first.
#if !defined(__SANITIZE_ADDRESS__)
TEST(CudaEmulator, ReportsWritesBehindSharedMemory) {
  Device device({.seed = 1});
  EXPECT_THAT(sample::write_behind_shared_memory,
              ThrowsMessage<Fault>(HasSubstr("behind a shared variable of 128 bytes")));
}
#endif

TEST(CudaEmulator, ReportsVectorsThatAreNotAligned) {
  Device device({.seed = 1});
  alignas(16) const std::array<float, 8> from = {0, 1, 2, 3, 4, 5, 6, 7};
  alignas(16) std::array<float, 8> to = {};
  sample::load_vector(&from[4], &to[0]);
  EXPECT_EQ(to[3], 7.0f);
  EXPECT_THROW(sample::load_vector(&from[1], &to[0]), Fault);
  EXPECT_THROW(sample::load_vector(&from[0], &to[2]), Fault);
}

TEST(CudaEmulator, RefusesLaunchesThatCudaRefuses) {
  Device device({.seed = 1});
  std::uint32_t counter = 0;
  sample::launch_threads(1024, &counter);
  EXPECT_FALSE(device.take_refusal());
  for (const unsigned threads : {0u, 1025u}) {
    sample::launch_threads(threads, &counter);
    EXPECT_TRUE(device.take_refusal());
  }
  EXPECT_EQ(counter, 1024u);
}

TEST(CudaEmulator, NeedsADevice) {
  std::uint32_t counter = 0;
  EXPECT_THROW(sample::launch_threads(1, &counter), Fault);
}

}  // namespace
}  // namespace kolo::emulator
