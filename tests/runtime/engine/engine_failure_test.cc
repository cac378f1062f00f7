// Tests operations when ranks disagree, freeze, abort or close.

#include <gmock/gmock.h>

#include <thread>

#include "runtime/engine/engine.h"
#include "tests/support/engine_job.h"

namespace kolo {
namespace {

using test::EngineJob;
using test::error_of;
using test::view;
using testing::AllOf;
using testing::HasSubstr;

constexpr Duration kTick = std::chrono::milliseconds(10);

/// Waits without a limit, and returns the error.
std::string error_of_wait(const Operation& operation) {
  try {
    operation.ticket->wait(std::chrono::milliseconds(0));
    return {};
  } catch (const KoloError& e) {
    return e.what();
  }
}

class Disagreements : public testing::TestWithParam<std::vector<int>> {
 protected:
  /// Submits one operation per rank, each with a waiting thread, and runs until all have ended.
  /// Returns the error, which must be equal on all ranks.
  std::string common_error(EngineJob& job, std::vector<Operation> operations) {
    std::vector<std::shared_ptr<Operation>> submitted;
    std::vector<std::thread> waiting;
    for (int rank = 0; rank < job.world_size(); ++rank) {
      submitted.push_back(job.submit(rank, std::move(operations[static_cast<std::size_t>(rank)])));
      waiting.emplace_back([ticket = submitted.back()->ticket] {
        try {
          ticket->wait(std::chrono::milliseconds(0));
        } catch (const KoloError&) {
        }
      });
    }
    for (const auto& operation : submitted) {
      while (operation->ticket->waiters() == 0 && !operation->ticket->done())
        std::this_thread::yield();
    }
    job.finish(submitted, kTick);
    for (std::thread& thread : waiting) thread.join();
    for (const auto& operation : submitted)
      EXPECT_EQ(error_of(*operation), error_of(*submitted[0]));
    return error_of(*submitted[0]);
  }

  std::vector<Operation> same(EngineJob& job, std::vector<float>& buffer) {
    return std::vector<Operation>(static_cast<std::size_t>(job.world_size()),
                                  test::all_reduce("x", buffer));
  }

  void fresh_tickets(std::vector<Operation>& operations) {
    for (Operation& operation : operations) operation.ticket = std::make_shared<TicketState>();
  }
};

TEST_P(Disagreements, OnNamesAreFoundAmongRanksThatWaitForEachOther) {
  std::vector<float> buffer(64);
  EngineJob job(ProcessGrid::with_node_sizes(GetParam()), {}, 12);
  auto operations = same(job, buffer);
  fresh_tickets(operations);
  operations[1].name = "y";
  EXPECT_THAT(common_error(job, operations),
              AllOf(HasSubstr("rank 1 waits for 'y'"), HasSubstr("'x'")));
  EXPECT_TRUE(test::sums(job));
}

TEST_P(Disagreements, OneRankEndsWhileOthersWait) {
  std::vector<float> buffer(64);
  EngineJob job(ProcessGrid::with_node_sizes(GetParam()), {}, 14);
  auto operations = same(job, buffer);
  fresh_tickets(operations);
  std::vector<std::shared_ptr<Operation>> sums, ends;
  for (int rank = 0; rank < job.world_size(); ++rank) {
    if (rank != 1) sums.push_back(job.submit(rank, operations[static_cast<std::size_t>(rank)]));
  }
  ends.push_back(job.submit(1, {.kind = OperationKind::kClose}));
  job.finish(sums);  // no time passes
  for (const auto& sum : sums) {
    EXPECT_THAT(error_of(*sum),
                HasSubstr("rank 1 has closed and takes no part in 'x': all_reduce"));
  }
  EXPECT_FALSE(ends[0]->ticket->done()) << "the others have not closed";
  const auto late = job.submit(1, {.kind = OperationKind::kBarrier, .name = "late"});
  job.finish({late});
  EXPECT_THAT(error_of(*late), HasSubstr("is closed"));
  for (int rank = 0; rank < job.world_size(); ++rank) {
    if (rank != 1) ends.push_back(job.submit(rank, {.kind = OperationKind::kClose}));
  }
  job.finish(ends);
  for (const auto& end : ends) EXPECT_EQ(error_of(*end), "");
}

INSTANTIATE_TEST_SUITE_P(Shapes, Disagreements,
                         testing::Values(std::vector<int>{2}, std::vector<int>{3},
                                         std::vector<int>{1, 1}, std::vector<int>{2, 2}));

// Rank 1 waits for 'y' while rank 0 waits for its gradients, one of which rank 1 has marked. The
// set fails on both ranks, and its name can be registered again.
TEST(Engine, AFailedGradientSetCanBeRegisteredAgain) {
  EngineJob job(ProcessGrid::with_node_sizes({2}), {.fusion_bytes = 0}, 18);
  const auto register_set = [&] {
    return job.register_sets({{.name = "a", .shape = {30}}, {.name = "b", .shape = {30}}});
  };
  const auto mark = [&](GradientSetState& set, int rank, std::size_t gradient) {
    test::mark(job.engine(rank), set, gradient);
  };
  const auto failed = register_set();
  mark(*failed[0], 0, 0);
  mark(*failed[0], 0, 1);
  mark(*failed[1], 1, 0);
  std::vector<float> buffer(8);
  const auto other = job.submit(1, test::all_reduce("y", buffer));
  std::thread waits_for_gradients(
      [&] { EXPECT_THROW(failed[0]->iterations().wait(std::chrono::milliseconds(0)), KoloError); });
  std::thread waits_for_other(
      [&] { EXPECT_THROW(other->ticket->wait(std::chrono::milliseconds(0)), KoloError); });
  while (failed[0]->waiters() == 0 || other->ticket->waiters() == 0) std::this_thread::yield();
  job.run_until([&] { return failed[0]->failed() && failed[1]->failed() && other->ticket->done(); },
                kTick);
  waits_for_gradients.join();
  waits_for_other.join();
  EXPECT_THROW(failed[1]->iterations().mark(1), KoloError);

  const auto sets = register_set();
  for (int rank = 0; rank < 2; ++rank) {
    for (std::size_t gradient : {std::size_t{0}, std::size_t{1}}) {
      auto* values = static_cast<float*>(sets[static_cast<std::size_t>(rank)]->view(gradient).data);
      std::fill_n(values, 30, static_cast<float>(rank + 1));
      mark(*sets[static_cast<std::size_t>(rank)], rank, gradient);
    }
  }
  job.run_until_idle();
  for (const auto& set : sets) {
    ASSERT_TRUE(set->iterations().wait(std::chrono::milliseconds(1)));
    EXPECT_EQ(static_cast<const float*>(set->view(1).data)[29], 1.5F);
  }
}

// Rank 1 registers its set again before rank 0 does so once. This must not count as rank 0's vote.
TEST(Engine, ASetThatIsRegisteredTwiceCountsOnce) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    EngineJob job(ProcessGrid::with_node_sizes({2}), {}, seed);
    const auto register_set = [&](int rank) {
      auto set = std::make_shared<GradientSetState>(
          "model", std::vector<GradientSpec>{{.name = "a", .shape = {30}}}, GradientOptions{});
      job.engine(rank).submit(set);
      return set;
    };
    const auto first = register_set(1);
    job.poll(500);
    const auto again = register_set(1);
    job.poll(500);
    EXPECT_FALSE(first->registration().done()) << "rank 0 has not come";
    ASSERT_TRUE(again->registration().done());
    EXPECT_TRUE(again->failed());

    const auto other = register_set(0);
    job.run_until_registered({first, other});
    for (const auto& [rank, set] : {std::pair(0, other), std::pair(1, first)}) {
      std::fill_n(static_cast<float*>(set->view(0).data), 30, static_cast<float>(rank + 1));
      test::mark(job.engine(rank), *set, 0);
    }
    job.run_until_idle();
    for (const auto& set : {first, other}) {
      ASSERT_TRUE(set->iterations().wait(std::chrono::milliseconds(1)));
      EXPECT_EQ(static_cast<const float*>(set->view(0).data)[29], 1.5F);
    }
  }
}

// Rank 0 has begun both buckets of its set. Rank 1 has begun neither and waits for 'y' instead.
// Rank 0's buckets are abandoned, all ranks get one error, and later operations work.
// Rank 1 may be late, and accept the new set when rank 0 has begun an iteration of the former one.
TEST(Engine, ASetBeginsNoIterationWhileItsSuccessorIsNotDecided) {
  EngineJob job(ProcessGrid::with_node_sizes({2}), {}, 20);
  const std::vector<GradientSpec> gradients{{.name = "a", .shape = {30}}};
  const auto sets = job.register_sets(gradients);
  for (const std::size_t count : {std::size_t{31}, std::size_t{30}}) {
    const auto next = [&](int rank, std::size_t elements) {
      auto set = std::make_shared<GradientSetState>(
          "model", std::vector<GradientSpec>{{.name = "a", .shape = {elements}}},
          GradientOptions{});
      job.engine(rank).submit(set);
      return set;
    };
    const auto first = next(0, 30);
    job.poll(100);
    EXPECT_THROW(sets[0]->mark(0), UsageError);
    EXPECT_THROW(sets[0]->mark_absent(0), UsageError);
    const auto second = next(1, count);
    job.run_until_registered({first, second});
    EXPECT_EQ(first->failed(), count == 31);
    if (count == 30) break;
    for (const int rank : {0, 1}) {  // the former set goes on after the mismatch
      test::mark(job.engine(rank), *sets[static_cast<std::size_t>(rank)], 0);
    }
    job.run_until_idle();
    for (const auto& set : sets) ASSERT_TRUE(set->wait(std::chrono::milliseconds(1)));
  }
  EXPECT_THROW(sets[0]->mark(0), KoloError);
}

TEST(Engine, ARejectedBucketThatIsRunningIsAbandoned) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    EngineJob job(ProcessGrid::with_node_sizes({3}), {.fusion_bytes = 0}, seed);
    const auto sets =
        job.register_sets({{.name = "a", .shape = {30}}, {.name = "b", .shape = {30}}});
    for (int rank : {0, 2}) {
      for (std::size_t gradient : {std::size_t{0}, std::size_t{1}}) {
        test::mark(job.engine(rank), *sets[static_cast<std::size_t>(rank)], gradient);
      }
    }
    job.run_until([&] {
      return job.engine(0).describe_wait().find("from rank 1") != std::string::npos &&
             job.engine(2).describe_wait().find("from rank 1") != std::string::npos;
    });
    EXPECT_FALSE(job.engine(0).idle()) << "it started without rank 1";

    std::vector<float> buffer(8);
    const auto other = job.submit(1, test::all_reduce("y", buffer));
    std::vector<std::string> errors(3);
    std::vector<std::thread> waiting;
    for (int rank : {0, 2}) {
      waiting.emplace_back([&sets, &errors, rank] {
        const auto index = static_cast<std::size_t>(rank);
        try {
          sets[index]->iterations().wait(std::chrono::milliseconds(0));
        } catch (const KoloError& e) {
          errors[index] = e.what();
        }
      });
    }
    waiting.emplace_back([&] { errors[1] = error_of_wait(*other); });
    while (sets[0]->waiters() == 0 || sets[2]->waiters() == 0 || other->ticket->waiters() == 0)
      std::this_thread::yield();
    job.run_until([&] { return sets[0]->failed() && sets[2]->failed() && other->ticket->done(); },
                  kTick);
    for (std::thread& thread : waiting) thread.join();
    EXPECT_THAT(errors[0], HasSubstr("rank 1 waits for 'y'"));
    EXPECT_EQ(errors[1], errors[0]);
    EXPECT_EQ(errors[2], errors[0]);
    EXPECT_TRUE(sets[1]->failed());
    // Nothing remains after the open inquiries are answered.
    job.run_until_idle(kTick);
    EXPECT_TRUE(test::sums(job));
  }
}

TEST(Engine, ARankThatOnlyTakesLongIsNotAnError) {
  EngineJob job(ProcessGrid::with_node_sizes({2, 1}), {}, 15);
  std::vector<std::vector<float>> data(3, std::vector<float>(8, 1.0F));
  std::vector<std::shared_ptr<Operation>> operations;
  for (int rank : {0, 2}) {
    operations.push_back(
        job.submit(rank, test::all_reduce("x", data[static_cast<std::size_t>(rank)])));
  }
  const TimePoint start = job.clock().now();
  job.run_until([&] { return job.clock().now() - start > std::chrono::minutes(2); },
                std::chrono::milliseconds(50));
  EXPECT_FALSE(operations[0]->ticket->done());
  operations.push_back(job.submit(1, test::all_reduce("x", data[1])));
  job.finish(operations);
  for (const auto& operation : operations) EXPECT_EQ(error_of(*operation), "");
}

TEST(Engine, AFrozenRankIsLostEverywhereAfterThePeerTimeout) {
  for (const std::vector<int>& nodes : {std::vector<int>{3}, {1, 1, 1}, {2, 1}}) {
    for (int frozen = 0; frozen < 3; ++frozen) {
      InProcessHub hub(ProcessGrid::with_node_sizes(nodes), EngineJob::kLimits);
      ManualClock clock;
      std::vector<std::unique_ptr<Transport>> transports;
      std::vector<std::unique_ptr<Engine>> engines;
      for (int rank = 0; rank < 3; ++rank) {
        transports.push_back(hub.transport(rank));
        engines.push_back(std::make_unique<Engine>(*transports.back(), hub.grid(),
                                                   EngineClocks{clock, clock}, Options{},
                                                   Calibration{}, EngineJob::kLimits));
      }
      std::vector<float> buffer(8);
      std::vector<std::shared_ptr<Operation>> operations;
      for (int rank = 0; rank < 3; ++rank) {
        operations.push_back(std::make_shared<Operation>(test::all_reduce("x", buffer)));
        if (rank != frozen) engines[static_cast<std::size_t>(rank)]->submit(operations.back());
      }
      for (int step = 0; step < 3000; ++step) {
        clock.advance(std::chrono::milliseconds(10));
        for (int rank = 0; rank < 3; ++rank) {
          if (rank != frozen) engines[static_cast<std::size_t>(rank)]->poll();
        }
      }
      std::string first;
      for (int rank = 0; rank < 3; ++rank) {
        if (rank == frozen) continue;
        ASSERT_TRUE(operations[static_cast<std::size_t>(rank)]->ticket->done())
            << "frozen " << frozen;
        const std::string error = error_of(*operations[static_cast<std::size_t>(rank)]);
        EXPECT_THAT(error, HasSubstr("rank " + std::to_string(frozen) + " has been silent"));
        if (first.empty()) first = error;
        EXPECT_EQ(error, first);
      }
    }
  }
}

TEST(Engine, EveryTicketIsAnsweredWhenARankAborts) {
  EngineJob job(ProcessGrid::with_node_sizes({2, 1}), {}, 16);
  std::vector<float> buffer(8);
  std::vector<std::shared_ptr<Operation>> operations;
  for (int i = 0; i < 5; ++i) {
    operations.push_back(job.submit(i % 2, test::all_reduce(std::to_string(i), buffer)));
  }
  job.engine(2).abort({.code = ErrorCode::kPeerLost, .rank = 2, .peer = 2, .what = "rank 2 left"});
  job.finish(operations, kTick);
  for (const auto& operation : operations)
    EXPECT_THAT(error_of(*operation), HasSubstr("rank 2 left"));
  job.run_until_ended(kTick);
  const auto late = job.submit(0, {.kind = OperationKind::kBarrier, .name = "late"});
  ASSERT_TRUE(late->ticket->done());
  EXPECT_THAT(error_of(*late), HasSubstr("rank 2 left"));
}

// No peer needs the error, so no time has to pass.
TEST(Engine, ARankWithoutPeersEndsAtOnceWhenItAborts) {
  EngineJob job(ProcessGrid::with_node_sizes({1}), {}, 3);
  job.engine(0).abort({.code = ErrorCode::kInternal, .rank = 0, .what = "broke"});
  job.run_until_ended();
}

// Waits learn which rank is missing before they time out, for any timeout.
TEST(Engine, AStallIsNamedBeforeTheWaitsTimeOut) {
  for (const int seconds : {1, 3, 12, 15, 60, 600}) {
    for (const std::vector<int>& nodes : {std::vector<int>{3}, {1, 1}, {2, 1}}) {
      SCOPED_TRACE(seconds);
      const std::chrono::seconds timeout(seconds);
      EngineJob job(ProcessGrid::with_node_sizes(nodes), {.operation_timeout = timeout}, 5);
      std::vector<float> data(10);
      std::vector<std::shared_ptr<Operation>> operations;
      for (int rank = 0; rank < job.world_size(); ++rank) {
        if (rank == 1) continue;
        operations.push_back(job.submit(rank, test::all_reduce("x", data)));
        operations.back()->ticket->event();  // counts as waiting
      }
      const TimePoint begin = job.clock().now();
      job.finish(operations, Duration(timeout) / 1000);
      EXPECT_LT(job.clock().now() - begin, timeout);
      for (const auto& operation : operations) {
        EXPECT_THAT(error_of(*operation), HasSubstr("which rank 1 has not submitted"));
      }
    }
  }
}

}  // namespace
}  // namespace kolo
