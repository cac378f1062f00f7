#pragma once

// The tests of the suite. A binary includes them once.

#include <poll.h>

#include <array>
#include <cstring>
#include <numeric>

#include "tests/conformance/transport_conformance.h"
#include "tests/conformance/transport_ends.h"
#include "tests/support/sanitized.h"

namespace kolo::test {

inline void TransportConformance::connect_all() {
  std::vector<int> heard(static_cast<std::size_t>(world_size()), 0);
  const std::array hello{std::byte{1}};
  run_phase(
      [&](int self) {
        for (int peer = 0; peer < world_size(); ++peer) rank(self).send_control(peer, hello);
      },
      [&](int self) {
        auto& count = heard[static_cast<std::size_t>(self)];
        for (ControlFrame frame; rank(self).receive_control(frame);) ++count;
        return count == world_size();
      });
}

TEST_P(TransportConformance, MessagesOfAllSizesArriveInBothDirections) {
  const std::size_t large = std::size_t{test::kSanitized ? 1 : 8} << 20;
  const std::size_t sizes[] = {0, 1, 7, 4095, (std::size_t{64} << 10) + 1, large};
  const auto n = static_cast<std::size_t>(world_size());
  for (const std::size_t size : sizes) {
    SCOPED_TRACE(size);
    std::vector<std::vector<Completion>> completions(n, std::vector<Completion>(2 * n));
    std::vector<std::vector<std::vector<std::byte>>> sent(n), received(n);
    run_phase(
        [&](int self) {
          const auto me = static_cast<std::size_t>(self);
          received[me].assign(n, std::vector<std::byte>(size));
          for (int peer = 0; peer < world_size(); ++peer) {
            const auto other = static_cast<std::size_t>(peer);
            sent[me].push_back(pattern(self, peer, size));
            rank(self).irecv(peer, numbered(peer, size & 0xffff), received[me][other],
                             completions[me][other]);
          }
          for (int peer = 0; peer < world_size(); ++peer) {
            const auto other = static_cast<std::size_t>(peer);
            rank(self).isend(peer, numbered(self, size & 0xffff), sent[me][other],
                             completions[me][n + other]);
          }
        },
        [&](int self) { return is_done(completions[static_cast<std::size_t>(self)]); });
    for (std::size_t to = 0; to < n; ++to) {
      for (std::size_t from = 0; from < n; ++from) {
        EXPECT_EQ(completions[to][from].bytes, size);
        EXPECT_EQ(received[to][from], sent[from][to]) << "from " << from << " to " << to;
      }
    }
  }
}

TEST_P(TransportConformance, ManyMessagesInFlightMatchReceivesPostedInAnyOrder) {
  constexpr std::size_t kMessages = 500;
  const auto n = static_cast<std::size_t>(world_size());
  std::vector<std::vector<std::size_t>> sent(n), received(n);
  std::vector<std::vector<Completion>> completions(n, std::vector<Completion>(2 * kMessages));
  run_phase(
      [&](int self) {
        const auto me = static_cast<std::size_t>(self);
        const int next = (self + 1) % world_size();
        const int previous = (self + world_size() - 1) % world_size();
        sent[me].resize(kMessages);
        std::iota(sent[me].begin(), sent[me].end(), me * kMessages);
        received[me].resize(kMessages);
        for (std::size_t i = 0; i < kMessages; ++i) {
          const std::size_t backwards = kMessages - 1 - i;
          rank(self).isend(next, numbered(self, i), std::as_bytes(std::span(&sent[me][i], 1)),
                           completions[me][i]);
          rank(self).irecv(previous, numbered(previous, backwards),
                           std::as_writable_bytes(std::span(&received[me][backwards], 1)),
                           completions[me][kMessages + i]);
        }
      },
      [&](int self) { return is_done(completions[static_cast<std::size_t>(self)]); });
  for (std::size_t me = 0; me < n; ++me) EXPECT_EQ(received[me], sent[(me + n - 1) % n]);
}

TEST_P(TransportConformance, UnexpectedMessagesWaitForTheirReceive) {
  const std::size_t sizes[] = {0, 5, 100'000};
  const int last = world_size() - 1;
  std::vector<std::vector<std::byte>> sent, received;
  for (const std::size_t size : sizes) {
    sent.push_back(pattern(0, last, size));
    received.emplace_back(size + 3);  // longer than the message
  }
  std::vector<Completion> sends(3), receives(3);
  bool told = false;
  run_phase(
      [&](int self) {
        if (self != 0) return;
        for (std::size_t i = 0; i < 3; ++i) rank(0).isend(last, numbered(0, i), sent[i], sends[i]);
        rank(0).send_control(last, {});
      },
      [&](int self) {
        if (self != last) return true;
        ControlFrame frame;
        told = told || rank(last).receive_control(frame);
        return told;
      });
  run_phase(
      [&](int self) {
        if (self != last) return;
        for (std::size_t i = 3; i-- > 0;) {
          rank(last).irecv(0, numbered(0, i), received[i], receives[i]);
        }
      },
      [&](int self) {
        return (self != 0 || is_done(sends)) && (self != last || is_done(receives));
      });
  for (std::size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(receives[i].bytes, sizes[i]);
    received[i].resize(sizes[i]);
    EXPECT_EQ(received[i], sent[i]);
  }
}

TEST_P(TransportConformance, EveryFieldOfATagTellsMessagesApart) {
  const int last = world_size() - 1;
  // The source is the sender. Other tests show that it distinguishes messages.
  const Tag tags[] = {{}, {.bucket = 1}, {.iteration = 1}, {.ordinal = 1}};
  std::array<int, 4> sent{10, 11, 12, 13}, received{};
  std::vector<Completion> sends(4), receives(4);
  run_phase(
      [&](int self) {
        for (std::size_t i = 0; i < 4; ++i) {
          if (self == 0) {
            rank(0).isend(last, tags[i], std::as_bytes(std::span(&sent[i], 1)), sends[i]);
          }
          if (self == last) {
            const std::size_t k = 3 - i;
            rank(last).irecv(0, tags[k], std::as_writable_bytes(std::span(&received[k], 1)),
                             receives[k]);
          }
        }
      },
      [&](int self) {
        return (self != 0 || is_done(sends)) && (self != last || is_done(receives));
      });
  EXPECT_EQ(received, sent);
}

TEST_P(TransportConformance, ControlFramesKeepTheirOrderAndDoNotWaitForData) {
  constexpr std::size_t kFrames = 300;
  const int last = world_size() - 1;
  const auto blocked = pattern(0, last, std::size_t{8} << 20);
  const auto large = pattern(1, 1, 100'000);
  std::vector<std::byte> received(blocked.size());
  std::vector<Completion> send(1), receive(1);
  std::size_t heard = 0;
  bool in_order = true;
  const auto frame_of = [&](std::size_t i) -> std::vector<std::byte> {
    if (i % 100 == 99) return large;
    return std::vector<std::byte>(i % 7, static_cast<std::byte>(i));
  };
  run_phase(
      [&](int self) {
        if (self != 0) return;
        rank(0).isend(last, numbered(0, 0), blocked, send[0]);
        for (std::size_t i = 0; i < kFrames; ++i) rank(0).send_control(last, frame_of(i));
      },
      [&](int self) {
        if (self != last) return true;
        for (ControlFrame frame; rank(last).receive_control(frame); ++heard) {
          in_order = in_order && frame.peer == 0 && frame.bytes == frame_of(heard);
        }
        return heard == kFrames;
      });
  EXPECT_TRUE(in_order);
  run_phase(
      [&](int self) {
        if (self == last) rank(last).irecv(0, numbered(0, 0), received, receive[0]);
      },
      [&](int self) { return (self != 0 || is_done(send)) && (self != last || is_done(receive)); });
  EXPECT_EQ(received, blocked);
}

TEST_P(TransportConformance, WhatWasWrittenBeforeASignalIsSeenAfterIt) {
  constexpr std::uint64_t kRounds = 500;
  // In each node, a rank writes to its arena and signals (flag 0). The next rank reads and answers
  // (flag 1); then the first rank writes again.
  struct Progress {
    std::uint64_t written = 0;
    std::uint64_t seen = 0;
    int wrong = 0;
  };
  std::vector<Progress> progress(static_cast<std::size_t>(world_size()));
  const auto word = [&](int self, int owner) -> std::uint64_t& {
    return *reinterpret_cast<std::uint64_t*>(rank(self).memory(owner).data() + 128);
  };
  run_phase([&](int self) { rank(self).commit(0, 4096); },
            [&](int self) {
              const auto& peers = grid_.ranks_of_node(grid_.node(self));
              const auto at = static_cast<std::size_t>(grid_.local_rank(self));
              const int next = peers[(at + 1) % peers.size()];
              const int previous = peers[(at + peers.size() - 1) % peers.size()];
              auto& [written, seen, wrong] = progress[static_cast<std::size_t>(self)];
              if (rank(self).signalled(next, 1) == written && written < kRounds) {
                word(self, self) = ++written;
                rank(self).signal(next, 0, written);
              }
              if (rank(self).signalled(previous, 0) > seen) {
                if (word(self, previous) != ++seen) ++wrong;
                rank(self).signal(previous, 1, seen);
              }
              return written == kRounds && seen == kRounds;
            });
  for (const Progress& one : progress) EXPECT_EQ(one.wrong, 0);
}

TEST_P(TransportConformance, EveryArrivalCountsOnce) {
  constexpr int kTimes = 200;
  run_phase(
      [&](int self) {
        const int leader = grid_.leader(grid_.node(self));
        for (int i = 0; i < kTimes; ++i) rank(self).arrive(leader, 3);
      },
      [&](int self) {
        const int leader = grid_.leader(grid_.node(self));
        const auto all = static_cast<std::uint64_t>(kTimes * grid_.local_size(self));
        return rank(self).counter(leader, 3) == all;
      });
  rank(0).set_counter(3, 7);
  EXPECT_EQ(rank(0).counter(0, 3), 7U);
  EXPECT_EQ(rank(0).arrive(0, 3), 8U);
}

TEST_P(TransportConformance, NoWakeUpIsLost) {
  if (GetParam().one_thread) GTEST_SKIP() << "one thread cannot sleep and ring";
  // Rank 0 and the last rank alternate. Each sleeps until the other has signalled.
  const int last = world_size() - 1;
  const bool by_flag = rank(0).is_mapped(last);
  const std::uint64_t rounds = by_flag ? 10'000 : 2'000;
  connect_all();
  run_ranks(world_size(), [&](const RankRun& run) {
    const int self = run.rank();
    if (self != 0 && self != last) return;
    const int peer = self == 0 ? last : 0;
    Transport& transport = rank(self);
    std::uint64_t heard = 0;
    const auto give_turn = [&](std::uint64_t turn) {
      if (by_flag) return transport.signal(peer, 0, turn);
      transport.send_control(peer, std::as_bytes(std::span(&turn, 1)));
    };
    const auto is_turn = [&](std::uint64_t turn) {
      if (by_flag) return transport.signalled(peer, 0) >= turn;
      for (ControlFrame frame; transport.receive_control(frame);) {
        std::memcpy(&heard, frame.bytes.data(), sizeof heard);
      }
      return heard >= turn;
    };
    const auto sleep = [&] {
      if (transport.poll()) return true;
      if (!transport.arm()) return true;
      std::vector<pollfd> waited;
      for (const int fd : transport.wake_fds()) waited.push_back({fd, POLLIN, 0});
      const int woken = ::poll(waited.data(), waited.size(), 10'000);
      transport.disarm();
      if (woken == 0) throw std::runtime_error("slept through a wake-up");
      return true;
    };
    for (std::uint64_t turn = 1; turn <= rounds; ++turn) {
      if (self == 0) give_turn(turn);
      run.poll_until(sleep, [&] { return is_turn(turn); });
      if (self == last) give_turn(turn);
    }
    // The last message may be sent only if its sender continues to poll.
    for (int i = 0; i < 100; ++i) transport.poll();
  });
}

TEST_P(TransportConformance, AnotherThreadOfTheProcessCanWakeARank) {
  Transport& transport = rank(0);
  while (transport.poll() || !transport.arm()) {
  }
  std::thread other([&] { transport.ring(0); });
  std::vector<pollfd> waited;
  for (const int fd : transport.wake_fds()) waited.push_back({fd, POLLIN, 0});
  EXPECT_GT(::poll(waited.data(), waited.size(), 10'000), 0);
  other.join();
  transport.disarm();
  EXPECT_TRUE(transport.poll());
}

TEST_P(TransportConformance, CountedBytesAreTheBytesSent) {
  const int last = world_size() - 1;
  const auto sent = pattern(0, last, 12'345);
  std::vector<std::byte> received(sent.size());
  std::vector<Completion> send(1), receive(1);
  bool heard = false;
  run_phase(
      [&](int self) {
        if (self == 0) rank(0).isend(last, numbered(0, 0), sent, send[0]);
        if (self == 0) rank(0).send_control(last, std::span(sent).first(77));
        if (self == last) rank(last).irecv(0, numbered(0, 0), received, receive[0]);
      },
      [&](int self) {
        ControlFrame frame;
        if (self == last) heard = heard || rank(last).receive_control(frame);
        return (self != 0 || is_done(send)) && (self != last || (is_done(receive) && heard));
      });
  const TrafficCounters out = rank(0).traffic(last);
  const TrafficCounters in = rank(last).traffic(0);
  EXPECT_EQ(out.data_sent, 12'345U);
  EXPECT_EQ(in.data_received, 12'345U);
  EXPECT_EQ(out.control_sent, 77U);
  EXPECT_EQ(out.control_frames_sent, 1U);
  EXPECT_EQ(in.control_received, 77U);
  if (last != 0) {
    EXPECT_EQ(out.data_received + in.data_sent + out.control_received, 0U);
  }
}

TEST_P(TransportConformance, AMessageTooLongForItsBufferIsAFailure) {
  const int last = world_size() - 1;
  for (const std::size_t size : {std::size_t{100}, std::size_t{300'000}}) {
    SCOPED_TRACE(size);
    const auto sent = pattern(0, last, size);
    std::vector<std::byte> received(size - 1);
    Completion send, receive;
    run_phase(
        [&](int self) {
          if (self == last) rank(last).irecv(0, numbered(0, size & 0xfff), received, receive);
          if (self == 0) rank(0).isend(last, numbered(0, size & 0xfff), sent, send);
        },
        [&](int self) { return self != last || rank(last).failure().has_value(); });
    EXPECT_EQ(rank(last).failure()->code, ErrorCode::kInternal);
    EXPECT_EQ(rank(last).failure()->peer, 0);
    EXPECT_NE(rank(last).failure()->what.find(std::to_string(size)), std::string::npos)
        << rank(last).failure()->what;
    EXPECT_EQ(receive.state, Completion::State::kPending);
    run_phase([&](int self) { rank(self).shutdown(false); }, [](int) { return true; });
    EXPECT_EQ(receive.state, Completion::State::kIdle);
    if (size == 100) job_ = GetParam().make(grid_, kSuiteLimits);
  }
}

TEST_P(TransportConformance, ACancelledReceiveTakesNoMessage) {
  const int last = world_size() - 1;
  const auto sent = pattern(0, last, 1000);
  std::vector<std::byte> cancelled(1000), received(1000);
  Completion first, second, send;
  run_phase(
      [&](int self) {
        if (self == last) {
          rank(last).irecv(0, numbered(0, 1), cancelled, first);
          EXPECT_TRUE(rank(last).cancel(first));
          EXPECT_EQ(first.state, Completion::State::kIdle);
          rank(last).irecv(0, numbered(0, 1), received, second);
        }
        if (self == 0) rank(0).isend(last, numbered(0, 1), sent, send);
      },
      [&](int self) {
        return (self != last || second.state == Completion::State::kDone) &&
               (self != 0 || send.state == Completion::State::kDone);
      });
  EXPECT_EQ(received, sent);
  EXPECT_EQ(cancelled, std::vector<std::byte>(1000));
  EXPECT_TRUE(rank(last).cancel(second));
}

TEST_P(TransportConformance, MemoryBeyondTheArenaIsRefused) {
  Transport& transport = rank(0);
  EXPECT_EQ(transport.memory(0).size(), kSuiteLimits.arena_bytes);
  transport.commit(0, kSuiteLimits.arena_bytes);
  transport.commit(kSuiteLimits.arena_bytes, 0);
  try {
    transport.commit(1, kSuiteLimits.arena_bytes);
    FAIL() << "took more than there is";
  } catch (const KoloError& error) {
    EXPECT_EQ(error.error().code, ErrorCode::kResources);
  }
}

TEST_P(TransportConformance, PeersCopyFromAndToMemoryThatIsOpenToThem) {
  const auto ranks = static_cast<std::size_t>(world_size());
  constexpr std::size_t kBytes = 300'000;
  std::vector<std::vector<std::byte>> memory;
  for (std::size_t i = 0; i < ranks; ++i)
    memory.emplace_back(kBytes, static_cast<std::byte>(i + 1));
  std::size_t open = 0;
  for (int reader = 0; reader < world_size(); ++reader) {
    for (int owner = 0; owner < world_size(); ++owner) {
      if (owner == reader || !rank(reader).is_mapped(owner)) continue;
      if (!rank(owner).is_open_to_peers()) continue;
      ++open;
      const auto& theirs = memory[static_cast<std::size_t>(owner)];
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, kBytes - 7}) {
        std::vector<std::byte> copy(count + 1);
        rank(reader).read_memory(owner, reinterpret_cast<std::uint64_t>(theirs.data() + 7),
                                 std::span(copy).first(count));
        EXPECT_TRUE(std::equal(copy.begin(), copy.end() - 1, theirs.begin()));
        EXPECT_EQ(copy.back(), std::byte{0});
      }
      auto& written = memory[static_cast<std::size_t>(owner)];
      const std::vector<std::byte> news(kBytes - 8, std::byte{0xA5});
      rank(reader).write_memory(owner, reinterpret_cast<std::uint64_t>(written.data() + 7), news);
      EXPECT_TRUE(std::equal(news.begin(), news.end(), written.begin() + 7));
      EXPECT_NE(written[6], news[0]);
      EXPECT_NE(written.back(), news[0]);
      std::ranges::fill(written, written.back());
    }
  }
  if (open == 0) GTEST_SKIP() << "no rank's memory is open to a peer";
}

}  // namespace kolo::test
