// Tests the ends of groups: which messages of a group may outlive it, and whom they reach.

#include <gmock/gmock.h>

#include "tests/support/engine_job.h"
#include "tests/support/group_job.h"
#include "tests/support/message_calls.h"

namespace kolo {
namespace {

using test::CalledMessage;
using test::error_of;
using test::GroupJob;
using test::view;
using ::testing::HasSubstr;

using Members = std::vector<std::shared_ptr<GroupEngine>>;

void close(GroupJob& job, const Members& members) {
  for (const auto& member : members) {
    GroupJob::submit(member->engine(), {.kind = OperationKind::kClose});
  }
  job.run_until([&] {
    return std::ranges::all_of(members, [](const auto& each) { return each->engine().ended(); });
  });
}

/// Sends from member 1 to member 0, or receives that message.
std::shared_ptr<CalledMessage> call(const Members& members, Message::Kind kind,
                                    std::vector<float>& data) {
  const bool sends = kind == Message::Kind::kSend;
  const auto message = std::make_shared<CalledMessage>(kind, view(data), sends ? 0 : 1, 5);
  members[sends ? 1 : 0]->engine().submit(message);
  return message;
}

// Rank 1 begins a use of "x" that rank 0 never begins. Its message waits at rank 0 for ever.
TEST(GroupEnds, ANewOneGetsNoDataOfAUseThatAClosedOneRejected) {
  GroupJob job(ProcessGrid::with_node_sizes({1, 1}), 11);
  std::vector<std::vector<float>> data(2);
  const auto begin = [&](const auto& group, std::size_t rank, float value) {
    data[rank].assign(100, value);
    return GroupJob::submit(group[rank]->engine(), test::all_reduce("x", data[rank]));
  };
  const auto sum = [&](const auto& group, float value) {
    job.finish({begin(group, 0, value), begin(group, 1, 2 * value)});
    return data[0];
  };
  const auto closed = job.create_all({0, 1});
  ASSERT_EQ(sum(closed, 1), std::vector<float>(100, 3));
  const auto rejected = begin(closed, 1, 1000);
  GroupJob::submit(closed[0]->engine(), {.kind = OperationKind::kClose});
  job.finish({rejected});
  EXPECT_THAT(error_of(*rejected), HasSubstr("rank 0 has closed"));
  close(job, closed);
  const auto next = job.create_all({0, 1});
  EXPECT_EQ(sum(next, 10), std::vector<float>(100, 30));
  EXPECT_EQ(sum(next, 20), std::vector<float>(100, 60));
}

TEST(GroupEnds, ANewOneGetsNoMessageThatAClosedOneNeverReceived) {
  GroupJob job(ProcessGrid::with_node_sizes({1, 1}), 12);
  std::vector<float> old(16'000, 1), sent(16'000, 2), received(16'000);
  const auto closed = job.create_all({0, 1});
  const auto lost = call(closed, Message::Kind::kSend, old);
  job.run_until([&] { return lost->is_over(); });
  close(job, closed);
  const auto next = job.create_all({0, 1});
  const test::CalledMessages both{call(next, Message::Kind::kSend, sent),
                                  call(next, Message::Kind::kReceive, received)};
  job.run_until([&] { return test::are_over(both); });
  EXPECT_EQ(received, sent);
}

}  // namespace
}  // namespace kolo
