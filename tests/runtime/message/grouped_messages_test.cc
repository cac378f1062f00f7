// Tests one or several tensors as one message between the engines of all ranks, for any
// interleaving. A message of one tensor is a plain one.

#include <gmock/gmock.h>

#include <random>

#include "comm/message/messages.h"
#include "runtime/engine/engine.h"
#include "tests/support/engine_job.h"
#include "tests/support/message_calls.h"

namespace kolo {
namespace {

using test::EngineJob;
using ::testing::AllOf;
using ::testing::HasSubstr;

using Extents = std::vector<std::pair<DType, std::size_t>>;

/// Memory for several tensors, with guards before and after each of them.
class GroupedTensors {
 public:
  explicit GroupedTensors(Extents extents) : extents_(std::move(extents)) {
    for (const auto& [dtype, count] : extents_) {
      memory_.emplace_back(kMargin + count * size_of(dtype) + kMargin, kUntouched);
    }
  }
  GroupedTensors(Extents extents, std::size_t first) : GroupedTensors(std::move(extents)) {
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      for (std::size_t at = kMargin; at < memory_[i].size() - kMargin; ++at) {
        memory_[i][at] = static_cast<std::byte>(first + 31 * i + at);
      }
    }
  }

  std::vector<BufferView> views() {
    std::vector<BufferView> views;
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      const auto& [dtype, count] = extents_[i];
      views.push_back({memory_[i].data() + kMargin, count, dtype});
    }
    return views;
  }
  std::size_t count() const {
    std::size_t count = 0;
    for (const auto& [dtype, each] : extents_) count += each;
    return count;
  }
  friend bool operator==(const GroupedTensors&, const GroupedTensors&) = default;

 private:
  static constexpr std::size_t kMargin = 8;
  static constexpr std::byte kUntouched{0xA5};

  Extents extents_;
  std::vector<std::vector<std::byte>> memory_;
};

/// Sizes for each protocol by which messages are sent. Those of one tensor are just below and above
/// each limit.
const std::vector<Extents> kGroupedExtents = {
    {{DType::kFloat32, 1}},
    {{DType::kFloat32, Messages::kMostInOffer / 4}},
    {{DType::kFloat32, Messages::kMostInOffer / 4 + 1}},
    {{DType::kFloat32, Messages::kMostBehindOffer / 4}},
    {{DType::kFloat32, Messages::kMostBehindOffer / 4 + 1}},
    {{DType::kFloat32, 0}},
    {{DType::kFloat32, 3}, {DType::kInt64, 0}, {DType::kUInt8, 5}},
    {{DType::kUInt8, 1}, {DType::kFloat64, 600}},
    {{DType::kInt64, 0}, {DType::kFloat32, 0}},
    {{DType::kFloat32, 40'000}, {DType::kUInt8, 3}, {DType::kBFloat16, 70'000}},
};
const Extents& grouped_extents(std::size_t number) {
  return kGroupedExtents[number % kGroupedExtents.size()];
}

std::shared_ptr<test::CalledMessage> call_tensors(EngineJob& job, int rank, Message::Kind kind,
                                                  GroupedTensors& tensors, int peer,
                                                  std::uint64_t tag) {
  const std::vector<BufferView> views = tensors.views();
  return views.size() == 1 ? test::call(job, rank, kind, views.front(), peer, tag)
                           : test::call(job, rank, kind, views, peer, tag);
}

std::shared_ptr<test::CalledMessage> send_tensors(EngineJob& job, int from, int to,
                                                  GroupedTensors& tensors, std::uint64_t tag = 0) {
  return call_tensors(job, from, Message::Kind::kSend, tensors, to, tag);
}

std::shared_ptr<test::CalledMessage> receive_tensors(EngineJob& job, int at, int from,
                                                     GroupedTensors& tensors,
                                                     std::uint64_t tag = 0) {
  return call_tensors(job, at, Message::Kind::kReceive, tensors, from, tag);
}

void finish_grouped(EngineJob& job, const test::CalledMessages& calls,
                    Duration tick = Duration(0)) {
  job.run_until([&] { return test::are_over(calls); }, tick);
  job.bring_back();
}

class GroupedMessagesOn : public testing::TestWithParam<MemoryKind> {
 protected:
  static std::optional<test::JobDevices> devices() { return test::devices_for(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Memory, GroupedMessagesOn,
                         testing::Values(MemoryKind::kHost, MemoryKind::kDevice),
                         [](const auto& each) { return std::string(to_string(each.param)); });

// Every rank sends to every rank, including itself, with two tags. Calls come in any order.
TEST_P(GroupedMessagesOn, ArriveInOrderForAnyInterleaving) {
  for (const std::vector<int>& shape : {std::vector{1}, {2}, {1, 1}, {2, 1}}) {
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      EngineJob job(ProcessGrid::with_node_sizes(shape), {}, seed, devices());
      std::mt19937_64 random(seed);
      struct Pair {
        std::unique_ptr<GroupedTensors> sent, got;
        std::shared_ptr<test::CalledMessage> receive;
      };
      std::map<std::tuple<int, int, std::uint64_t>, std::vector<Pair>> messages;
      test::CalledMessages calls;
      const std::size_t each = kGroupedExtents.size();
      for (int from = 0; from < job.world_size(); ++from) {
        for (int to = 0; to < job.world_size(); ++to) {
          for (std::uint64_t tag = 0; tag < 2; ++tag) {
            auto& line = messages[{from, to, tag}];
            for (std::size_t i = 0; i < each; ++i) {
              const Extents& extents = grouped_extents(i + tag + seed);
              line.push_back({std::make_unique<GroupedTensors>(extents, 100 * tag + i),
                              std::make_unique<GroupedTensors>(extents),
                              {}});
            }
            std::size_t sent = 0, asked = 0;
            while (sent < each || asked < each) {
              if (sent < each && (asked == each || random() % 2 == 0)) {
                calls.push_back(send_tensors(job, from, to, *line[sent++].sent, tag));
              } else {
                Pair& next = line[asked++];
                next.receive = receive_tensors(job, to, from, *next.got, tag);
                calls.push_back(next.receive);
              }
              if (random() % 4 == 0) job.poll(random() % 30);
            }
          }
        }
      }
      finish_grouped(job, calls);
      for (const auto& [key, line] : messages) {
        for (const Pair& pair : line) {
          ASSERT_EQ(pair.receive->text(), "");
          ASSERT_EQ(pair.receive->received.source, std::get<0>(key));
          ASSERT_EQ(pair.receive->received.count, pair.sent->count());
          ASSERT_EQ(*pair.got, *pair.sent);
        }
      }
      job.run_until_idle();
      EXPECT_EQ(job.close(), "");
    }
  }
}

TEST_P(GroupedMessagesOn, AreReceivedFromAnyRankOnceEach) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    for (const std::size_t number : {6U, 7U, 9U}) {
      EngineJob job(ProcessGrid::with_node_sizes({2, 2}), {}, seed, devices());
      const Extents& extents = grouped_extents(number);
      std::vector<GroupedTensors> sent, got;
      for (std::size_t rank = 0; rank < 4; ++rank) sent.emplace_back(extents, 50 * rank);
      for (std::size_t rank = 0; rank < 4; ++rank) got.emplace_back(extents);
      test::CalledMessages calls, receives;
      for (std::size_t i = 0; i < 4; ++i) {
        if (i % 2 == seed % 2) job.poll(seed * 10);
        calls.push_back(send_tensors(job, static_cast<int>(i), 1, sent[i], 9));
        receives.push_back(receive_tensors(job, 1, kAnyRank, got[i], 9));
      }
      finish_grouped(job, calls);
      finish_grouped(job, receives);
      std::vector<int> sources;
      for (std::size_t i = 0; i < 4; ++i) {
        ASSERT_EQ(receives[i]->text(), "");
        sources.push_back(receives[i]->received.source);
        EXPECT_TRUE(got[i] == sent[static_cast<std::size_t>(sources.back())]) << "seed " << seed;
      }
      EXPECT_THAT(sources, testing::UnorderedElementsAre(0, 1, 2, 3));
    }
  }
}

struct Misfit {
  Extents received;
  std::string text;
};

/// Returns receives that do not match a message whose first tensor has `large` elements.
std::vector<Misfit> misfits(std::size_t large) {
  const std::string first = "float32 [" + std::to_string(large) + "]";
  return {
      {{{DType::kFloat32, large}, {DType::kInt64, 6}}, first + " + int64 [6]"},
      {{{DType::kFloat32, large}, {DType::kInt64, 4}}, first + " + int64 [4]"},
      {{{DType::kFloat32, large}, {DType::kFloat64, 5}}, first + " + float64 [5]"},
      {{{DType::kInt64, 5}, {DType::kFloat32, large}}, "int64 [5] + " + first},
      {{{DType::kFloat32, large}, {DType::kInt64, 5}, {DType::kInt8, 0}},
       first + " + int64 [5] + int8 [0]"},
      {{{DType::kFloat32, large + 100}}, "float32 [" + std::to_string(large + 100) + "]"},
  };
}

void expect_that_grouped_messages_work(EngineJob& job) {
  for (const Extents& extents : kGroupedExtents) {
    GroupedTensors sent(extents, 7), got(extents);
    const test::CalledMessages calls = {send_tensors(job, 0, 1, sent),
                                        receive_tensors(job, 1, 0, got)};
    finish_grouped(job, calls);
    EXPECT_EQ(calls[0]->text() + calls[1]->text(), "");
    EXPECT_TRUE(got == sent);
  }
}

TEST(GroupedMessages, ThatDifferFailOnBothSidesWithBothLists) {
  constexpr std::size_t kLarge = 100'000;
  const Extents extents = {{DType::kFloat32, kLarge}, {DType::kInt64, 5}};
  for (const std::vector<int>& shape : {std::vector{2}, {1, 1}}) {
    for (const Misfit& misfit : misfits(kLarge)) {
      for (const bool sends_first : {true, false}) {
        EngineJob job(ProcessGrid::with_node_sizes(shape), {}, 8);
        GroupedTensors sent(extents, 1), got(misfit.received);
        test::CalledMessages calls(2);
        const auto sends = [&] { calls[0] = send_tensors(job, 0, 1, sent, 12); };
        if (sends_first) sends();
        job.poll(100);
        calls[1] = receive_tensors(job, 1, kAnyRank, got, 12);
        job.poll(100);
        if (!sends_first) sends();
        finish_grouped(job, calls);
        EXPECT_EQ(calls[0]->code(), ErrorCode::kMismatch);
        EXPECT_EQ(calls[0]->text(), calls[1]->text());
        EXPECT_THAT(calls[0]->text(),
                    HasSubstr("rank 0 sends float32 [100000] + int64 [5] with tag 12 to rank 1, "
                              "which receives " +
                              misfit.text));
        EXPECT_TRUE(got == GroupedTensors(misfit.received)) << "nothing is written";
        expect_that_grouped_messages_work(job);
      }
    }
  }
}

TEST(GroupedMessages, APlainOneDoesNotFitAListOfSeveral) {
  EngineJob job(ProcessGrid::with_node_sizes({2}), {}, 8);
  const Extents several = {{DType::kFloat32, 100'000}, {DType::kFloat32, 0}};
  GroupedTensors sent({{DType::kFloat32, 100'000}}, 1), got(several);
  const test::CalledMessages calls = {
      test::call(job, 0, Message::Kind::kSend, sent.views().front(), 1, 3),
      receive_tensors(job, 1, 0, got, 3)};
  finish_grouped(job, calls);
  EXPECT_EQ(calls[0]->text(), calls[1]->text());
  EXPECT_THAT(calls[1]->text(), HasSubstr("rank 0 sends 100000 elements of float32 with tag 3 to "
                                          "rank 1, which receives float32 [100000] + float32 [0]"));
}

// The senders were already answered, so the receiver gets the error and the sender logs it.
TEST(GroupedMessages, ThatCameUnaskedAndDifferAreLoggedByTheSender) {
  for (const std::vector<int>& shape : {std::vector{2}, {1, 1}}) {
    for (const std::size_t count : {std::size_t{10}, std::size_t{5000}}) {
      if (shape[0] == 2 && count > 10) continue;
      for (const Misfit& misfit : misfits(count)) {
        EngineJob job(ProcessGrid::with_node_sizes(shape), {}, 10);
        GroupedTensors sent({{DType::kFloat32, count}, {DType::kInt64, 5}}, 2);
        GroupedTensors got(misfit.received);
        finish_grouped(job, {send_tensors(job, 0, 1, sent, 4)});
        testing::internal::CaptureStderr();
        const auto refused = receive_tensors(job, 1, 0, got, 4);
        finish_grouped(job, {refused});
        job.run_until_idle();
        job.poll(100);
        EXPECT_THAT(testing::internal::GetCapturedStderr(),
                    AllOf(HasSubstr("rank 0 sends float32 [" + std::to_string(count)),
                          HasSubstr("which receives " + misfit.text)));
        EXPECT_EQ(refused->code(), ErrorCode::kMismatch);
        expect_that_grouped_messages_work(job);
        EXPECT_EQ(job.close(), "");
      }
    }
  }
}

// A list is one message of any length: between nodes, one offer and one data message.
TEST(GroupedMessages, CountTheirBytesOnTheNetworkOnce) {
  EngineJob job(ProcessGrid::with_node_sizes({2, 1}), {}, 7);
  std::size_t bytes = 0;
  for (const Extents& extents : kGroupedExtents) {
    GroupedTensors sent(extents, 3);
    for (const BufferView& view : sent.views()) bytes += view.bytes();
    for (const int peer : {1, 2}) {
      GroupedTensors got(extents);
      finish_grouped(job, {send_tensors(job, 0, peer, sent), receive_tensors(job, peer, 0, got)});
    }
  }
  EXPECT_EQ(job.engine(0).network_bytes_sent(), bytes);
  EXPECT_EQ(job.engine(2).network_bytes_sent(), 0u);
}

TEST(GroupedMessages, AReceiveIsWithdrawnAsAWhole) {
  for (const Extents& extents : kGroupedExtents) {
    EngineJob job(ProcessGrid::with_node_sizes({2}), {}, 4);
    GroupedTensors sent(extents, 6), never(extents), got(extents);
    const auto withdrawn = receive_tensors(job, 1, 0, never);
    const auto next = receive_tensors(job, 1, 0, got);
    job.engine(1).withdraw(withdrawn, {.code = ErrorCode::kCancelled, .what = "taken back"});
    finish_grouped(job, {withdrawn, send_tensors(job, 0, 1, sent), next});
    EXPECT_EQ(withdrawn->code(), ErrorCode::kCancelled);
    EXPECT_EQ(next->text(), "");
    EXPECT_TRUE(never == GroupedTensors(extents));
    EXPECT_TRUE(got == sent);
  }
}

// Buffers that the transport still reads or writes belong to it until the transport ends.
TEST(GroupedMessages, AFailureEndsAllCalls) {
  std::vector<Extents> lists = kGroupedExtents;
  lists.push_back({{DType::kFloat32, 200'000}});
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    EngineJob job(ProcessGrid::with_node_sizes({2, 1}), {}, seed);
    std::vector<std::unique_ptr<GroupedTensors>> memory;
    test::CalledMessages calls;
    for (int rank = 0; rank < 3; ++rank) {
      const int next = (rank + 1) % 3;
      for (std::size_t i = 0; i < lists.size(); ++i) {
        memory.push_back(std::make_unique<GroupedTensors>(lists[i], seed));
        calls.push_back(send_tensors(job, rank, next, *memory.back(), i));
        memory.push_back(std::make_unique<GroupedTensors>(lists[i]));
        calls.push_back(receive_tensors(job, next, rank, *memory.back(), i));
      }
    }
    GroupedTensors never(kGroupedExtents[0]);
    calls.push_back(receive_tensors(job, 1, kAnyRank, never, 99));
    job.poll(seed);
    job.engine(2).abort(
        {.code = ErrorCode::kPeerLost, .rank = 2, .peer = 2, .what = "rank 2 left"});
    finish_grouped(job, calls, std::chrono::milliseconds(10));
    for (const auto& call : calls) {
      if (call->code()) {
        EXPECT_THAT(call->text(), HasSubstr("rank 2 left"));
      }
    }
    EXPECT_EQ(calls.back()->code(), ErrorCode::kPeerLost);
    const auto late = send_tensors(job, 0, 1, *memory.front());
    finish_grouped(job, {late}, std::chrono::milliseconds(10));
    EXPECT_EQ(late->code(), ErrorCode::kPeerLost);
  }
}

}  // namespace
}  // namespace kolo
