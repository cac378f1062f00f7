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

// Member 1 does not receive, so what member 0 sends is in flight when the group fails.
TEST(GroupEnds, AFailedOneAnswersWhatIsInFlightOnceItIsOver) {
  for (const bool job_ends : {false, true}) {
    GroupJob job(ProcessGrid::with_node_sizes({1, 1}), 13);
    job.complete_sends_on_receipt();
    const Members group = job.create_all({1, 0});
    Engines& engines = job.engines(0);
    Engine& fails = group[1]->engine();
    std::vector<std::shared_ptr<GradientSetState>> sets;
    for (const auto& member : group) {
      const std::vector<GradientSpec> gradients{{.name = "a", .shape = {30}}};
      sets.push_back(std::make_shared<GradientSetState>("model", gradients, GradientOptions{}));
      member->engine().submit(sets.back());
    }
    job.run_until([&] {
      return std::ranges::all_of(sets, [](auto& set) { return set->registration().done(); });
    });
    std::vector<float> sent(16'000, 1), received(16'000);
    const auto message = call(group, Message::Kind::kSend, sent);
    test::mark(fails, *sets[1], 0);
    int polls = 0;
    job.run_until([&] { return ++polls > 500; });
    fails.abort({.code = ErrorCode::kInternal, .rank = 1, .what = "broke"});
    const auto poll = [&] {
      engines.poll();
      job.clock().advance(std::chrono::milliseconds(10));
    };
    while (!fails.ended()) poll();
    EXPECT_FALSE(message->is_over()) << "the transport uses its memory";
    EXPECT_TRUE(sets[1]->iterations().uses_memory());
    EXPECT_FALSE(engines.idle());
    if (job_ends) {
      job.engine(0).abort({.code = ErrorCode::kPeerLost, .rank = 0, .peer = 0, .what = "left"});
      while (!engines.ended()) poll();
    } else {
      call(group, Message::Kind::kReceive, received);
      test::mark(group[0]->engine(), *sets[0], 0);
      job.run_until([&] { return engines.idle(); });
    }
    EXPECT_THAT(message->text(), HasSubstr("broke"));
    EXPECT_TRUE(sets[1]->iterations().failed());
    EXPECT_FALSE(sets[1]->iterations().uses_memory());
    EXPECT_EQ(received, std::vector<float>(16'000, job_ends ? 0.0F : 1.0F));
  }
}

// The job ends in order, and what the group left behind is no failure of the job.
TEST(GroupEnds, AFailedOneLeavesNothingToReport) {
  GroupJob job(ProcessGrid::with_node_sizes({1, 1}), 14);
  const Members group = job.create_all({0, 1});
  std::vector<float> data(16'000, 1);
  const auto lost = call(group, Message::Kind::kSend, data);
  job.run_until([&] { return lost->is_over(); });
  group[0]->engine().abort({.code = ErrorCode::kInternal, .rank = 0, .what = "broke"});
  job.run_until([&] { return group[0]->engine().ended() && group[1]->engine().ended(); },
                std::chrono::milliseconds(10));
  ::testing::internal::CaptureStderr();
  for (const int rank : {0, 1}) {
    GroupJob::submit(job.engine(rank), {.kind = OperationKind::kClose});
  }
  job.run_until([&] { return job.engines(0).ended() && job.engines(1).ended(); });
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace kolo
