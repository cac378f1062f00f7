#include "tests/support/memory_rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "comm/base/error.h"

namespace kolo {
namespace {

using ::testing::HasSubstr;

TEST(MemoryRendezvous, NamesWhoDidNotCome) {
  const auto endpoints = make_memory_rendezvous(3, std::chrono::milliseconds{20});
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      endpoints[1]->all_gather("here");
      FAIL();
    } catch (const KoloError& error) {
      EXPECT_EQ(error.error().code, ErrorCode::kTimeout);
      EXPECT_THAT(error.what(), HasSubstr("rank 0, 2"));
    }
  }
}

TEST(MemoryRendezvous, NamesWhoLeft) {
  auto endpoints = make_memory_rendezvous(2, std::chrono::seconds{60});
  std::thread leaving([&] { endpoints[1].reset(); });
  try {
    endpoints[0]->all_gather("here");
    ADD_FAILURE();
  } catch (const KoloError& error) {
    EXPECT_EQ(error.error().code, ErrorCode::kPeerLost);
    EXPECT_EQ(error.error().peer, 1);
  }
  leaving.join();
}

TEST(MemoryRendezvous, NeedsARank) {
  EXPECT_THROW(make_memory_rendezvous(0, std::chrono::seconds{1}), UsageError);
}

}  // namespace
}  // namespace kolo
