// Tests messages between the engines of all ranks, in one thread and for any interleaving.

#include "comm/message/messages.h"

#include <gmock/gmock.h>

#include <chrono>

#include "runtime/engine/engine.h"
#include "tests/support/engine_job.h"
#include "tests/support/message_calls.h"

namespace kolo {
namespace {

using test::EngineJob;
using test::receive;
using test::send;
using testing::AllOf;
using testing::HasSubstr;

using MessageCalls = test::CalledMessages;

void finish_messages(EngineJob& job, const MessageCalls& calls, Duration tick = Duration(0)) {
  job.run_until([&] { return test::are_over(calls); }, tick);
  job.bring_back();
}

/// Sizes just below and above each limit between the protocols by which messages are sent.
constexpr std::size_t kMessageCounts[] = {0,
                                          1,
                                          Messages::kMostInOffer / 4,
                                          Messages::kMostInOffer / 4 + 1,
                                          Messages::kMostBehindOffer / 4,
                                          Messages::kMostBehindOffer / 4 + 1};

std::vector<float> numbered(std::size_t count, std::size_t first) {
  std::vector<float> data(count);
  for (std::size_t i = 0; i < count; ++i) data[i] = static_cast<float>((first + i) % 1000);
  return data;
}

/// The parameter is the memory kind. With device memory, every third buffer is in host memory.
class EngineMessagesOn : public testing::TestWithParam<MemoryKind> {
 protected:
  static std::optional<test::JobDevices> devices() { return test::devices_for(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Memory, EngineMessagesOn,
                         testing::Values(MemoryKind::kHost, MemoryKind::kDevice),
                         [](const auto& each) { return std::string(to_string(each.param)); });

TEST_P(EngineMessagesOn, AreReceivedFromAnyRankOnceEach) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    EngineJob job(ProcessGrid::with_node_sizes({2, 2}), {}, seed, devices());
    std::vector<std::vector<float>> sent, got;
    for (int rank = 0; rank < 4; ++rank) {
      sent.push_back(numbered(kMessageCounts[2 + static_cast<std::size_t>(rank)],
                              static_cast<std::size_t>(rank)));
      got.emplace_back(kMessageCounts[5], -1.0F);
    }
    MessageCalls calls, receives;
    for (std::size_t i = 0; i < 4; ++i) {
      if (i % 2 == seed % 2) job.poll(seed * 10);
      calls.push_back(send(job, static_cast<int>(i), 1, sent[i], 9));
      receives.push_back(receive(job, 1, kAnyRank, got[i], 9));
    }
    finish_messages(job, calls);
    finish_messages(job, receives);
    std::vector<int> sources;
    for (std::size_t i = 0; i < 4; ++i) {
      const Received& received = receives[i]->received;
      ASSERT_EQ(receives[i]->text(), "");
      sources.push_back(received.source);
      got[i].resize(received.count);
      EXPECT_EQ(got[i], sent[static_cast<std::size_t>(received.source)]) << "seed " << seed;
    }
    EXPECT_THAT(sources, testing::UnorderedElementsAre(0, 1, 2, 3));
  }
}

TEST_P(EngineMessagesOn, OfEveryDtype) {
  EngineJob job(ProcessGrid::with_node_sizes({1, 1}), {}, 3, devices());
  for (const DType dtype : kAllDTypes) {
    for (const std::size_t count : {std::size_t{5}, std::size_t{100'000}}) {
      std::vector<std::uint8_t> sent(count * size_of(dtype)), got(sent.size());
      for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::uint8_t>(i * 7);
      const MessageCalls calls = {
          test::call(job, 0, Message::Kind::kSend, {sent.data(), count, dtype}, 1, 0),
          test::call(job, 1, Message::Kind::kReceive, {got.data(), count, dtype}, 0, 0)};
      finish_messages(job, calls);
      EXPECT_EQ(got, sent) << to_string(dtype);
    }
  }
}

// A large message is in flight while its sender waits for a message from the receiver.
TEST_P(EngineMessagesOn, LargeOnesCross) {
  for (const std::vector<int>& shape : {std::vector<int>{2}, std::vector<int>{1, 1}}) {
    EngineJob job(ProcessGrid::with_node_sizes(shape), {}, 5, devices());
    std::vector<float> out(200'000, 1.0F), in(200'000), back(200'000);
    const MessageCalls calls = {send(job, 0, 1, out), send(job, 1, 0, out), receive(job, 0, 1, in),
                                receive(job, 1, 0, back)};
    finish_messages(job, calls);
    EXPECT_EQ(in, out);
    EXPECT_EQ(back, out);
  }
}

TEST(EngineMessages, SmallOnesDoNotWaitForTheirReceiver) {
  EngineJob job(ProcessGrid::with_node_sizes({2, 1}), {}, 5);
  std::vector<float> small(10), medium(1000), large(1'000'000);
  finish_messages(job, {send(job, 0, 1, small), send(job, 0, 2, medium)});
  const MessageCalls late = {send(job, 0, 1, large), send(job, 0, 2, large)};
  job.poll(1000);
  EXPECT_FALSE(late[0]->is_over() || late[1]->is_over());
  EXPECT_THAT(job.engine(0).describe_wait(), HasSubstr("a send to rank 1 with tag 0"));
  for (const int rank : {1, 2}) {
    finish_messages(
        job, {receive(job, rank, 0, rank == 1 ? small : medium), receive(job, rank, 0, large)});
  }
  finish_messages(job, late);
}

// A rank that sends without being received has to wait, because the receiver stores at most a fixed
// number of bytes per sender.
TEST(EngineMessages, WhatCameUnaskedIsBounded) {
  for (const std::vector<int>& shape : {std::vector<int>{2}, std::vector<int>{1, 1}}) {
    EngineJob job(ProcessGrid::with_node_sizes(shape), {}, 6);
    const std::size_t count = Messages::kMostInOffer / sizeof(float);
    const std::size_t fit = Messages::kRoom / Messages::kMostInOffer;
    std::vector<float> data(count, 2.0F), got(count);
    for (int round = 0; round < 3; ++round) {
      MessageCalls sends;
      for (std::size_t i = 0; i < 3 * fit; ++i) sends.push_back(send(job, 0, 1, data));
      job.poll(500);
      const auto over = std::ranges::count_if(sends, [](const auto& c) { return c->is_over(); });
      EXPECT_LE(static_cast<std::size_t>(over), fit);
      EXPECT_GE(static_cast<std::size_t>(over), fit / 2);
      for (std::size_t i = 0; i < 3 * fit; ++i) finish_messages(job, {receive(job, 1, 0, got)});
      finish_messages(job, sends);
      EXPECT_EQ(got, data);
    }
    EXPECT_EQ(job.close(), "");
  }
}

/// Runs `job` until both calls fail with one error, and returns it. The next message must work.
std::string common_message_error(EngineJob& job, const MessageCalls& calls) {
  finish_messages(job, calls);
  EXPECT_EQ(calls[0]->code(), ErrorCode::kMismatch);
  EXPECT_EQ(calls[0]->text(), calls[1]->text());
  for (const std::size_t count : kMessageCounts) {
    std::vector<float> data = numbered(count, 3), got(count);
    const MessageCalls next = {send(job, 0, 1, data), receive(job, 1, 0, got)};
    finish_messages(job, next);
    EXPECT_EQ(next[0]->text() + next[1]->text(), "");
    EXPECT_EQ(got, data);
  }
  return calls[0]->text();
}

TEST(EngineMessages, ThatDoNotFitFailOnBothSides) {
  struct Case {
    DType dtype;
    std::size_t count;
    const char* text;
  };
  const Case cases[] = {{DType::kFloat32, 99'999, "whose buffer holds 99999"},
                        {DType::kInt64, 50'000, "which receives int64"}};
  for (const std::vector<int>& shape : {std::vector<int>{2}, std::vector<int>{1, 1}}) {
    for (const auto& [dtype, count, text] : cases) {
      for (const bool sends_first : {true, false}) {
        EngineJob job(ProcessGrid::with_node_sizes(shape), {}, 8);
        std::vector<float> data(100'000), got(100'000, 5.0F);
        MessageCalls calls(2);
        const auto sends = [&] { calls[0] = send(job, 0, 1, data, 12); };
        if (sends_first) sends();
        job.poll(100);
        calls[1] =
            test::call(job, 1, Message::Kind::kReceive, {got.data(), count, dtype}, kAnyRank, 12);
        job.poll(100);
        if (!sends_first) sends();
        EXPECT_THAT(common_message_error(job, calls),
                    HasSubstr(std::string("rank 0 sends 100000 elements of float32 with tag 12 to "
                                          "rank 1, ") +
                              text));
        EXPECT_THAT(got, testing::Each(5.0F));
      }
    }
  }
}

// The senders were already answered, so the receiver gets the error and the sender logs it.
TEST(EngineMessages, ThatCameUnaskedAndDoNotFitAreLoggedByTheSender) {
  for (const std::vector<int>& shape : {std::vector<int>{2}, std::vector<int>{1, 1}}) {
    for (const std::size_t count : {std::size_t{10}, std::size_t{5000}}) {
      if (shape[0] == 2 && count > 10) continue;
      EngineJob job(ProcessGrid::with_node_sizes(shape), {}, 10);
      std::vector<float> data(count), got(9);
      finish_messages(job, {send(job, 0, 1, data, 4)});
      testing::internal::CaptureStderr();
      const MessageCalls refused = {receive(job, 1, 0, got, 4)};
      finish_messages(job, refused);
      job.run_until_idle();
      job.poll(100);
      const std::string text = "rank 0 sends " + std::to_string(count) + " elements of float32";
      EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr(text));
      EXPECT_THAT(refused[0]->text(), HasSubstr(text));
      EXPECT_EQ(common_message_error(job, {refused[0], refused[0]}), refused[0]->text());
      EXPECT_EQ(job.close(), "");
    }
  }
}

TEST(EngineMessages, ThatNobodyReceivesAreReportedAtTheEnd) {
  for (const std::vector<int>& shape : {std::vector<int>{2}, std::vector<int>{1, 1}}) {
    EngineJob job(ProcessGrid::with_node_sizes(shape), {}, 11);
    std::vector<float> small(10), medium(5000), large(1'000'000), got(10);
    const MessageCalls sends = {send(job, 0, 1, small, 3), send(job, 0, 1, medium, 4),
                                send(job, 0, 1, large, 5)};
    const MessageCalls receives = {receive(job, 0, 1, got, 6)};
    job.poll(500);
    testing::internal::CaptureStderr();
    EXPECT_EQ(job.close(), "") << "the transport reports none of it";
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                HasSubstr("rank 0 sends 10 elements of float32 with tag 3 to rank 1, which has "
                          "closed without receiving them" +
                          std::string(shape.size() > 1 ? " and 1 more\n" : "\n")));
    EXPECT_EQ(sends[0]->text(), "");
    EXPECT_THAT(sends[2]->text(),
                HasSubstr("close: rank 1 has closed and receives nothing more: rank 0 sends "
                          "1000000 elements of float32 with tag 5"));
    EXPECT_EQ(receives[0]->code(), ErrorCode::kShutdown);
    EXPECT_THAT(receives[0]->text(),
                HasSubstr("rank 1 has closed and sends nothing more: a receive from rank 1"));
  }
}

// The frozen peer does not poll.
TEST(EngineMessages, AFrozenPeerOfAWaitIsNamed) {
  enum class Wait { kReceive, kReceiveFromAny, kSend };
  for (const std::vector<int>& shape : {std::vector<int>{2}, std::vector<int>{1, 1}}) {
    for (const Wait wait : {Wait::kReceive, Wait::kReceiveFromAny, Wait::kSend}) {
      EngineJob job(ProcessGrid::with_node_sizes(shape), {}, 12, std::nullopt,
                    {.poll = [](int rank, Engine& engine) { return rank == 0 && engine.poll(); }});
      std::vector<float> data(1'000'000);
      const MessageCalls calls = {wait == Wait::kSend      ? send(job, 0, 1, data)
                                  : wait == Wait::kReceive ? receive(job, 0, 1, data)
                                                           : receive(job, 0, kAnyRank, data)};
      finish_messages(job, calls, std::chrono::milliseconds(100));
      EXPECT_EQ(calls[0]->code(), ErrorCode::kPeerLost);
      EXPECT_THAT(calls[0]->text(), AllOf(HasSubstr("rank 1 has been silent")));
    }
  }
}

// Within a node, only ranks of the job can write frames. Between nodes, outsiders can too.
TEST(EngineMessages, FramesThatBelongToNoMessageEndTheJobWithinANodeOnly) {
  constexpr std::byte kElements[8]{};
  const Frame frames[] = {
      {.kind = FrameKind::kTake, .least = 3},
      {.kind = FrameKind::kRoom, .greatest = 1},
      {.kind = FrameKind::kOffer, .offer = {.count = 1}},
      {.kind = FrameKind::kOffer, .offer = {.count = 3}, .payload = kElements},
      {.kind = FrameKind::kOffer,
       .offer = {.count = 2, .delivery = Delivery::kOnDemand},
       .payload = kElements},
      {.kind = FrameKind::kOffer, .offer = {.count = 1, .delivery = Delivery::kBehindOffer}},
      {.kind = FrameKind::kOffer,
       .offer = {.count = std::uint64_t{1} << 62, .delivery = Delivery::kOnDemand}},
      {.kind = FrameKind::kOffer,
       .offer = {.count = Messages::kMostBehindOffer, .delivery = Delivery::kBehindOffer}},
      {.kind = FrameKind::kOffer, .offer = {.count = 1, .more = {{2}}}, .payload = kElements},
      {.kind = FrameKind::kOffer,
       .offer = {.count = 3,
                 .delivery = Delivery::kOnDemand,
                 .more = {{1}, {std::uint64_t{1} << 61}}}},
  };
  std::vector<std::vector<std::byte>> malformed = {{}, {std::byte{0xFE}}, {std::byte{0xFF}}};
  malformed.push_back(std::vector<std::byte>(9, std::byte{0xFF}));  // an unknown group
  for (const std::vector<int>& shape : {std::vector<int>{2}, std::vector<int>{1, 1}}) {
    const bool is_one_node = shape.size() == 1;
    for (const Frame& frame : frames) {
      const bool is_sound = frame.offer.count == 1 && frame.offer.delivery != Delivery::kInOffer;
      EngineJob job(ProcessGrid::with_node_sizes(shape), {}, 13);
      std::vector<std::byte> bytes;
      encode(frame, bytes);
      job.transport(0).send_control(1, bytes);
      for (const auto& each : malformed) {
        if (!is_one_node) job.transport(0).send_control(1, each);
      }
      std::vector<float> data(3);
      const MessageCalls calls = {receive(job, 1, 0, data, 5)};
      job.poll(100);
      EXPECT_EQ(calls[0]->code() == ErrorCode::kInternal, !is_sound && is_one_node);
      if (!is_sound && is_one_node) {
        EXPECT_THAT(calls[0]->text(), HasSubstr("received a stray control frame"));
      }
      if (is_one_node) continue;
      std::vector<float> sent = {4, 5, 6};
      const MessageCalls both = {calls[0], send(job, 0, 1, sent, 5)};
      finish_messages(job, both);
      EXPECT_EQ(data, sent);
    }
  }
}

}  // namespace
}  // namespace kolo
