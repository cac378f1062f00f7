#pragma once

// The tests of the suite about the end of a rank. The other tests include this header.

#include <algorithm>
#include <thread>

#include "tests/conformance/transport_conformance.h"

namespace kolo::test {

TEST_P(TransportConformance, AnAgreedEndIsNoFailureAndCancelsWhatIsInFlight) {
  if (world_size() == 1) GTEST_SKIP() << "needs a peer";
  connect_all();
  std::vector<std::byte> buffer(64);
  Completion receive;
  rank(0).irecv(1, numbered(1, 5), buffer, receive);
  EXPECT_EQ(receive.state, Completion::State::kPending);
  rank(0).shutdown(true);
  EXPECT_EQ(receive.state, Completion::State::kIdle);
  rank(0).shutdown(true);  // a second call has no effect
  std::vector<int> polls(static_cast<std::size_t>(world_size()), 0);
  run_phase([](int) {}, [&](int self) { return ++polls[static_cast<std::size_t>(self)] > 5'000; });
  for (int i = 1; i < world_size(); ++i) {
    EXPECT_FALSE(rank(i).failure()) << rank(i).failure()->to_string();
  }
}

TEST_P(TransportConformance, AMessageThatNobodyWaitedForIsAFailureOfAnAgreedEnd) {
  if (world_size() == 1) GTEST_SKIP() << "needs a peer";
  enum class End { kAgreed, kAgreedWithoutIt, kAfterAnError };
  const int last = world_size() - 1;
  const Tag tag{.source = 0, .bucket = 4, .iteration = 3, .ordinal = 2};
  for (const End end : {End::kAgreed, End::kAgreedWithoutIt, End::kAfterAnError}) {
    SCOPED_TRACE(static_cast<int>(end));
    if (end != End::kAgreed) job_ = GetParam().make(grid_, kSuiteLimits);
    const auto text = pattern(0, last, 1'000);
    std::vector<std::byte> received(text.size());
    std::vector<Completion> stray(1), send(1), receive(1);
    run_phase(
        [&](int self) {
          if (self == last) rank(last).irecv(0, numbered(0, 0), received, receive[0]);
          if (self != 0) return;
          rank(0).isend(last, tag, text, stray[0]);
          rank(0).isend(last, numbered(0, 0), text, send[0]);  // is received after it
        },
        [&](int self) { return self != last || is_done(receive); });
    // All messages of that iteration and later ones are dropped, for any source and ordinal.
    rank(last).abandon({.bucket = 4, .iteration = 4});
    rank(last).abandon({.bucket = 3, .iteration = 3});
    if (end == End::kAgreedWithoutIt) {
      rank(last).abandon({.source = 1, .bucket = 4, .iteration = 3, .ordinal = 7});
    }
    for (const auto& rank : job_.ranks) rank->shutdown(end != End::kAfterAnError);
    const auto failure = rank(last).failure();
    ASSERT_EQ(failure.has_value(), end == End::kAgreed);
    if (end != End::kAgreed) continue;
    EXPECT_EQ(failure->code, ErrorCode::kInternal);
    EXPECT_EQ(failure->peer, 0);
    EXPECT_NE(failure->what.find("bucket 4, iteration 3, number 2"), std::string::npos)
        << failure->what;
  }
}

TEST_P(TransportConformance, AMessageThatIsTakenWhileItComesIsNoStray) {
  if (world_size() == 1) GTEST_SKIP() << "needs a peer";
  const int last = world_size() - 1;
  const auto sent = pattern(0, last, std::size_t{4} << 20);  // received in many polls
  std::vector<std::byte> received(sent.size());
  std::vector<Completion> send(1), receive(1);
  std::vector<int> polls(static_cast<std::size_t>(world_size()), 0);
  run_phase(
      [&](int self) {
        if (self == 0) rank(0).isend(last, numbered(0, 0), sent, send[0]);
      },
      [&](int self) { return ++polls[static_cast<std::size_t>(self)] > 4; });
  run_phase(
      [&](int self) {
        if (self == last) rank(last).irecv(0, numbered(0, 0), received, receive[0]);
      },
      [&](int self) { return (self != 0 || is_done(send)) && (self != last || is_done(receive)); });
  EXPECT_EQ(received, sent);
  for (const auto& rank : job_.ranks) rank->shutdown(true);
  EXPECT_FALSE(rank(last).failure()) << rank(last).failure()->to_string();
}

// The rank itself no longer polls, so another thread reports the error.
TEST_P(TransportConformance, AnErrorThatARankPostsIsTheFailureOfItsNode) {
  connect_all();
  const Error error{.code = ErrorCode::kStall, .rank = 0, .peer = 0, .what = "stuck"};
  std::thread other([&] {
    rank(0).post_error(error);
    rank(0).post_error({.what = "another"});
  });
  run_phase([](int) {},
            [&](int self) {
              return self == 0 || !rank(self).is_mapped(0) || rank(self).failure().has_value();
            });
  other.join();
  EXPECT_FALSE(rank(0).failure());
  for (int self = 1; self < world_size(); ++self) {
    const auto failure = rank(self).failure();
    ASSERT_EQ(failure.has_value(), rank(self).is_mapped(0));
    if (failure) {
      EXPECT_EQ(failure->to_string(), error.to_string());
    }
  }
}

TEST_P(TransportConformance, MappedPeersCanTellThatARankIsStuck) {
  connect_all();
  const auto seen = [&](int self) {
    return rank(self).is_mapped(0) ? rank(self).stuck_in(0) : "not mapped";
  };
  for (const std::string verb : {"complete", "run", ""}) {
    rank(0).note_stuck(verb);
    for (int self = 0; self < world_size(); ++self) {
      EXPECT_EQ(seen(self), rank(self).is_mapped(0) ? verb : "not mapped");
    }
  }
}

// Peers that did not read the error in time find it later.
TEST_P(TransportConformance, APostedErrorOutlivesItsRank) {
  connect_all();
  rank(0).post_error({.code = ErrorCode::kStall, .rank = 0, .peer = 0, .what = "stuck"});
  rank(0).shutdown(false);
  run_phase([](int) {}, [&](int self) { return self == 0 || rank(self).failure().has_value(); });
  for (int self = 1; self < world_size(); ++self) {
    EXPECT_EQ(rank(self).failure()->code,
              rank(self).is_mapped(0) ? ErrorCode::kStall : ErrorCode::kPeerLost);
  }
}

TEST_P(TransportConformance, ARankThatStopsAfterAnErrorIsReportedByAllOthers) {
  if (world_size() == 1) GTEST_SKIP() << "needs a peer";
  connect_all();
  rank(0).shutdown(false);
  run_phase([](int) {}, [&](int self) { return self == 0 || rank(self).failure().has_value(); });
  for (int i = 1; i < world_size(); ++i) {
    const bool connected = rank(i).failure()->peer == 0;
    EXPECT_TRUE(connected) << rank(i).failure()->to_string();
    EXPECT_EQ(rank(i).failure()->code, ErrorCode::kPeerLost);
    EXPECT_EQ(rank(i).failure()->rank, i);
  }
}

// Peers learn the reason by other means, possibly late.
TEST_P(TransportConformance, ARankThatSaysGoodbyeBeforeItStopsIsNotReported) {
  if (world_size() == 1) GTEST_SKIP() << "needs a peer";
  connect_all();
  std::vector<int> polls(static_cast<std::size_t>(world_size()), 0);
  const auto poll_all = [&](int from) {
    std::ranges::fill(polls, 0);
    run_phase([](int) {},
              [&, from](int self) {
                return self < from || ++polls[static_cast<std::size_t>(self)] > 5'000;
              });
  };
  rank(0).say_goodbye();
  poll_all(0);
  rank(0).shutdown(false);
  poll_all(1);
  for (int i = 1; i < world_size(); ++i) {
    EXPECT_FALSE(rank(i).failure()) << rank(i).failure()->to_string();
  }
}

}  // namespace kolo::test
