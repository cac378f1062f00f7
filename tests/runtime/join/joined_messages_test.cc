// Tests messages to and from ranks that have run out of data.

#include <gmock/gmock.h>

#include "comm/message/messages.h"
#include "tests/runtime/join/joined_job.h"
#include "tests/support/message_calls.h"
#include "tests/support/node_shapes.h"

namespace kolo::joined {
namespace {

using test::CalledMessages;
using test::receive;
using test::send;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr auto kJoinedTick = std::chrono::milliseconds(50);
/// Three sizes that are sent by three different protocols.
constexpr std::size_t kSmall = 10, kMedium = 5000, kLarge = Messages::kMostBehindOffer / 4 + 1;

class JoinedMessages : public ::testing::Test {
 protected:
  /// Runs `body` with a job of each shape with at least two ranks, in interleavings of many seeds.
  /// `last` is the highest rank.
  template <typename Body>
  void for_all_jobs(const Body& body) {
    for (const std::vector<int>& nodes : kShapes) {
      for (unsigned seed = 0; seed < seeds(8); ++seed) {
        SCOPED_TRACE(test::shape_text(nodes) + ", seed " + std::to_string(seed));
        EngineJob job(ProcessGrid::with_node_sizes(nodes), options(), seed);
        if (job.world_size() > 1) body(job, job.world_size() - 1);
      }
    }
  }

  static void finish(EngineJob& job, const CalledMessages& calls) {
    job.run_until([&] { return are_over(calls); }, kJoinedTick);
  }

  /// Makes the ranks below `end` join too, and expects that all joins end.
  static void expect_to_end(EngineJob& job, std::vector<std::shared_ptr<JoinTicket>> tickets,
                            int end) {
    for (int rank = 0; rank < end; ++rank) tickets.push_back(join(job, rank));
    job.run_until([&] {
      return std::ranges::all_of(tickets, [](const auto& ticket) { return ticket->done(); });
    });
    for (const auto& ticket : tickets) EXPECT_EQ(outcome(*ticket), outcome(*tickets[0]));
  }

  static void expect_messages_work(EngineJob& job) {
    std::vector<float> sent(kMedium, 3), got(kMedium);
    const CalledMessages calls = {send(job, 0, job.world_size() - 1, sent),
                                  receive(job, job.world_size() - 1, kAnyRank, got)};
    finish(job, calls);
    EXPECT_THAT(calls,
                Each(::testing::Pointee(::testing::Property(&test::CalledMessage::text, ""))));
    EXPECT_EQ(got, sent);
    EXPECT_EQ(job.close(), "");
  }
};

// Messages sent before the join are received, however late. Only the receive after them fails.
TEST_F(JoinedMessages, AReceiveFromARankThatHasJoinedFailsBehindAllItSent) {
  for_all_jobs([](EngineJob& job, int last) {
    constexpr std::size_t kLengths[] = {kSmall, kLarge, kMedium, 0};
    std::vector<std::vector<float>> sent, got;
    CalledMessages sends, receives;
    for (const std::size_t count : kLengths) {
      sent.emplace_back(count, static_cast<float>(count));
      got.emplace_back(kLarge);
    }
    got.emplace_back(1, 7.0F);
    for (std::vector<float>& data : sent) sends.push_back(send(job, last, 0, data));
    const auto ticket = join(job, last);
    for (std::vector<float>& data : got) receives.push_back(receive(job, 0, last, data));
    finish(job, receives);
    for (std::size_t i = 0; i < std::size(kLengths); ++i) {
      EXPECT_EQ(receives[i]->text(), "");
      EXPECT_EQ(receives[i]->received.count, kLengths[i]);
      if (kLengths[i] > 0) {
        EXPECT_EQ(got[i][kLengths[i] - 1], static_cast<float>(kLengths[i]));
      }
    }
    const std::string n = std::to_string(last);
    EXPECT_EQ(receives.back()->text(),
              "rank 0: peer " + n + ": join: rank " + n +
                  " has joined and sends nothing until rank 0 joins, too: a receive from rank " +
                  n + " with tag 0");
    EXPECT_EQ(receives.back()->code(), ErrorCode::kMismatch);
    EXPECT_EQ(got.back().front(), 7);
    expect_to_end(job, {ticket}, last);
    expect_messages_work(job);
  });
}

// Messages that need no buffer at the receiver are received after the join.
TEST_F(JoinedMessages, ASendThatNeedsTheBufferOfARankThatHasJoinedFails) {
  for_all_jobs([](EngineJob& job, int last) {
    const auto ticket = join(job, last);
    std::vector<float> small(kSmall, 1), large(kLarge, 2), got(kLarge);
    const CalledMessages sends = {send(job, 0, last, small, 5), send(job, 0, last, large, 5)};
    finish(job, sends);
    EXPECT_EQ(sends[0]->text(), "");
    const std::string n = std::to_string(last);
    EXPECT_EQ(sends[1]->text(),
              "rank " + n + ": peer 0: join: rank " + n +
                  " has joined and receives nothing until rank 0 joins, too: rank 0 sends " +
                  std::to_string(kLarge) + " elements of float32 with tag 5");
    expect_to_end(job, {ticket}, last);
    const CalledMessages late = {receive(job, last, 0, got, 5)};
    finish(job, late);
    EXPECT_EQ(late[0]->received.count, kSmall);
    expect_messages_work(job);
  });
}

// A receive that was begun before the join completes.
TEST_F(JoinedMessages, ARankThatHasJoinedReceivesWhatItHadAskedFor) {
  for_all_jobs([](EngineJob& job, int last) {
    std::vector<std::vector<float>> got(3, std::vector<float>(kLarge));
    CalledMessages calls;
    for (std::vector<float>& data : got) calls.push_back(receive(job, last, 0, data));
    const auto ticket = join(job, last);
    std::vector<std::vector<float>> sent;
    for (const std::size_t count : {kSmall, kMedium, kLarge}) sent.emplace_back(count, 4.0F);
    job.poll(100);
    for (std::vector<float>& data : sent) calls.push_back(send(job, 0, last, data));
    finish(job, calls);
    for (const auto& call : calls) EXPECT_EQ(call->text(), "");
    EXPECT_EQ(got[2], sent[2]);
    expect_to_end(job, {ticket}, last);
    expect_messages_work(job);
  });
}

// As long as one rank has data, it may send. After that no rank may.
TEST_F(JoinedMessages, AReceiveFromAnyRankFailsWhenAllOthersHaveJoined) {
  for_all_jobs([](EngineJob& job, int last) {
    std::vector<std::shared_ptr<JoinTicket>> tickets;
    for (int rank = 1; rank < last; ++rank) tickets.push_back(join(job, rank));
    std::vector<float> sent(kLarge, 3), got(kLarge), none(kLarge);
    CalledMessages receives = {receive(job, 0, kAnyRank, got)};
    job.run_until([&, polls = 0]() mutable { return ++polls > 2000; }, kJoinedTick);
    EXPECT_FALSE(receives[0]->is_over());
    receives.push_back(receive(job, 0, kAnyRank, none));
    const auto sends = send(job, last, 0, sent);
    tickets.push_back(join(job, last));
    finish(job, receives);
    EXPECT_EQ(receives[0]->text(), "");
    EXPECT_EQ(got, sent);
    EXPECT_EQ(
        receives[1]->text(),
        "rank 0: join: all other ranks have joined and send nothing until rank 0 joins, too: a "
        "receive from any rank with tag 0");
    EXPECT_TRUE(sends->is_over());
    expect_to_end(job, tickets, 1);
    expect_messages_work(job);
  });
}

// No thread waits for these calls, so they may end after the join.
TEST_F(JoinedMessages, CallsThatNobodyWaitsForOutliveAJoin) {
  for_all_jobs([](EngineJob& job, int last) {
    const auto ticket = join(job, last);
    std::vector<float> sent(kLarge, 3), got(kLarge), back(kLarge);
    CalledMessages calls = {send(job, 0, last, sent, 1), receive(job, 0, last, back, 2)};
    for (const auto& call : calls) call->awaited = false;
    job.run_until([&, polls = 0]() mutable { return ++polls > 2000; }, kJoinedTick);
    EXPECT_FALSE(calls[0]->is_over() || calls[1]->is_over());
    expect_to_end(job, {ticket}, last);
    for (const auto& call : calls) call->awaited = true;
    calls.push_back(receive(job, last, 0, got, 1));
    finish(job, {calls[0], calls[2]});
    calls.push_back(send(job, last, 0, got, 2));
    finish(job, calls);
    for (const auto& call : calls) EXPECT_EQ(call->text(), "");
    EXPECT_EQ(back, sent);
    EXPECT_EQ(job.close(), "");
  });
}

TEST_F(JoinedMessages, ARankReceivesFromItselfWhenAllOthersHaveJoined) {
  for_all_jobs([](EngineJob& job, int last) {
    std::vector<std::shared_ptr<JoinTicket>> tickets;
    for (int rank = 1; rank <= last; ++rank) tickets.push_back(join(job, rank));
    std::vector<float> sent(kLarge, 3), got(kLarge);
    const CalledMessages calls = {receive(job, 0, 0, got)};
    job.run_until([&, polls = 0]() mutable { return ++polls > 2000; }, kJoinedTick);
    EXPECT_FALSE(calls[0]->is_over());
    finish(job, {calls[0], send(job, 0, 0, sent)});
    EXPECT_EQ(got, sent);
    expect_to_end(job, tickets, 1);
    expect_messages_work(job);
  });
}

}  // namespace
}  // namespace kolo::joined
