// Tests ranks that run out of data. Each rank is a thread with a runtime.

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <optional>

#include "tests/runtime/api/runtime_calls.h"

namespace kolo::test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

TEST(RuntimeJoin, TakesPartUntilAllHaveJoined) {
  constexpr int kRanks = 4, kEpochs = 3;
  Texts last(kRanks);
  RuntimeJob(kRanks, test_options()).run([&](Runtime& runtime) {
    GradientSet set = runtime.register_gradients("model", {{.name = "w", .shape = {1000}}},
                                                 {.divisor = Divisor::kContributingRanks});
    std::string mine;
    auto* const gradient = static_cast<float*>(set.view(0).data);
    for (int epoch = 0; epoch < kEpochs; ++epoch) {
      const auto steps = [epoch](int rank) { return 3 * ((rank + epoch) % kRanks); };
      for (int step = 0; step < steps(runtime.rank()); ++step) {
        float sum = 0, mean = 0, active = 0;
        for (int rank = 0; rank < kRanks; ++rank) {
          if (steps(rank) <= step) continue;
          sum += static_cast<float>(rank + step);
          ++active;
        }
        mean = sum / active;
        std::fill_n(gradient, 1000, static_cast<float>(runtime.rank() + step));
        set.ready(0);
        std::vector<float> data(50, static_cast<float>(runtime.rank() + step));
        runtime.all_reduce("x", view(data)).wait();
        require(data[49] == sum, "a wrong sum");
        runtime.barrier().wait();
        set.wait();
        require(std::abs(gradient[999] - mean) < 1e-4f, "a wrong average");
      }
      mine += std::to_string(runtime.join()) + " ";
    }
    last.set(runtime.rank(), mine);
    all_reduce_works(runtime, "x", 50);
  });
  EXPECT_THAT(last.all(), Each(last.all()[0]));
}

TEST(RuntimeJoin, OfAGroupConcernsNothingElse) {
  RuntimeJob(3, test_options()).run([](Runtime& runtime) {
    if (runtime.rank() == 2) return all_reduce_works(runtime, "all");
    Group pair = runtime.group({0, 1}, {.arena_bytes = std::size_t{1} << 20});
    std::vector<float> data{1};
    if (pair.rank() == 1) pair.all_reduce("x", view(data)).wait();
    require(pair.join() >= 0, "nobody was last");
    require(data[0] == 1, "a wrong sum");
    all_reduce_works(runtime, "all");
  });
}

TEST(RuntimeJoin, MessagesAndGroupsWithARankThatHasJoinedAreErrorsAndHarmNothingElse) {
  constexpr int kRanks = 3, kJoined = 2;
  Texts groups(kRanks - 1), splits(kRanks - 1);
  RuntimeJob(kRanks, test_options()).run([&](Runtime& runtime) {
    std::vector<float> small(10, 1), large(100'000, 2), got(100'000);
    const int rank = runtime.rank();
    const auto refused = [](const std::function<void()>& call, const std::string& why) {
      const std::string error = error_of(call);
      require(error.find("mismatch: ") == 0 && error.find(why) != std::string::npos, error);
    };
    if (rank == kJoined) {
      runtime.send(view(small), 0, 1).wait();
    } else {
      if (rank == 0) {
        require(runtime.recv(view(got), kJoined, 1).received().count == 10, "a message was lost");
      }
      refused([&] { runtime.recv(view(got), kJoined, 1).wait(); },
              "rank 2 has joined and sends nothing until rank " + std::to_string(rank) +
                  " joins, too: a receive from rank 2 with tag 1");
      refused([&] { runtime.send(view(large), kJoined, 2).wait(); },
              "rank 2 has joined and receives nothing until rank " + std::to_string(rank) +
                  " joins, too: rank " + std::to_string(rank) +
                  " sends 100000 elements of float32 with tag 2");
      groups.set(rank, error_of([&] { runtime.group({0, 1, 2}, {.name = "all"}); }));
      splits.set(rank, error_of([&] { runtime.split(0, 0); }));
      Group pair = runtime.group({0, 1}, {.arena_bytes = std::size_t{1} << 20});
      pair.all_reduce("x", view(large)).wait();
      require(large[0] == 4, "a wrong sum");
      Ticket sent = pair.send(view(large), 1 - rank);
      require(pair.recv(view(got), kAnyRank).received().source == 1 - rank, "a wrong source");
      sent.wait();
      if (rank == 0) {
        runtime.send(view(small), 1, 3).wait();
      } else {
        require(runtime.recv(view(got), kAnyRank, 3).received().source == 0, "a wrong source");
        runtime.send(view(small), kJoined, 4).wait();
      }
    }
    runtime.join();
    if (rank == kJoined) {
      require(runtime.recv(view(got), kAnyRank, 4).received().source == 1, "a message was lost");
    }
    runtime.group({0, 1, 2}, {.name = "all", .arena_bytes = std::size_t{1} << 20}).barrier().wait();
    all_reduce_works(runtime, "x", 50);
  });
  EXPECT_THAT(
      groups.all(),
      Each("mismatch: group 'all' [0, 1, 2]: join: rank 2 of the job has joined and creates "
           "no group until all have"));
  EXPECT_THAT(splits.all(), Each(HasSubstr("rank 2 has joined and takes no part in 'split'")));
}

// A rank that has joined continues to wait in the next call, and may make no other call.
TEST(RuntimeJoin, HasADeadline) {
  Options options = test_options();
  options.operation_timeout = std::chrono::milliseconds(250);
  RuntimeJob job(2, options);
  std::atomic<int> timed_out = 0, returned = 0;
  run_ranks(2, [&](const RankRun& run) {
    Options mine = options;
    if (run.rank() == 1) mine.operation_timeout = std::chrono::seconds(60);
    Runtime runtime = job.join(run.rank(), mine);
    if (run.rank() == 1) {
      meet(run, timed_out);
      runtime.join();
    } else {
      require(
          error_of([&] { runtime.join(); }).find("not all ranks have joined") != std::string::npos,
          "no time-out");
      std::vector<float> data(10);
      for (const std::string& error :
           {error_of([&] { runtime.all_reduce("x", view(data)).wait(); }),
            error_of([&] { runtime.close(); }),
            error_of([&] { runtime.send(view(data), 1).wait(); })}) {
        require(error.find("this rank has joined") != std::string::npos, error);
      }
      meet(run, timed_out);
      while (!error_of([&] { runtime.join(); }).empty()) {
      }
    }
    meet(run, returned);
  });
}

// The memory of its gradients may have gone, too.
TEST(RuntimeJoin, DeclinesIterationsOfASetThatItHasDestroyed) {
  Texts errors(2);
  RuntimeJob(2, test_options()).run([&](Runtime& runtime) {
    std::vector<float> data(100, 1);
    std::optional<GradientSet> set =
        runtime.register_gradients("model", {{.name = "w", .data = data}});
    set->ready(0);
    set->wait();
    if (runtime.rank() == 1) {
      set.reset();
      data.assign(100, 7);
    } else {
      set->ready(0);
      errors.set(0, error_of([&] { set->wait(); }));
    }
    runtime.join();
    require(runtime.rank() == 0 || data == std::vector<float>(100, 7), "memory that is another's");
    all_reduce_works(runtime, "x");
  });
  EXPECT_THAT(errors.all()[0], AllOf(HasSubstr("mismatch: "), HasSubstr("rank 1 has joined"),
                                     HasSubstr("it has destroyed the set")));
}

// Rank 1 gives up, frees its memory and joins. Only then rank 0 registers the set.
TEST(RuntimeJoin, DeclinesIterationsOfASetWhoseRegistrationTimedOut) {
  Options options = test_options();
  options.operation_timeout = std::chrono::seconds(60);
  RuntimeJob job(2, options);
  std::atomic<int> timed_out = 0;
  std::string error;
  run_ranks(2, [&](const RankRun& run) {
    Options mine = options;
    if (run.rank() == 1) mine.operation_timeout = std::chrono::milliseconds(250);
    Runtime runtime = job.join(run.rank(), mine);
    std::vector<float> data(100, 1);
    const auto again = [&] {
      return runtime.register_gradients("model", {{.name = "w", .data = data}});
    };
    if (run.rank() == 1) {
      const std::string late = error_of(again);
      require(late.find("no result") != std::string::npos, late);
      data.assign(100, 7);
      meet(run, timed_out);
      while (!error_of([&] { runtime.join(); }).empty()) {
      }
      require(data == std::vector<float>(100, 7), "memory that is another's");
    } else {
      meet(run, timed_out);
      GradientSet set = again();
      set.ready(0);
      error = error_of([&] { set.wait(); });
      runtime.join();
    }
  });
  EXPECT_THAT(error, AllOf(HasSubstr("mismatch: "), HasSubstr("it has destroyed the set")));
}

// Rank 1 has joined the group when it releases it. Rank 0 joins, too, and closes the group.
TEST(RuntimeJoin, IsOverBeforeAGroupIsReleased) {
  Options options = test_options();
  options.operation_timeout = std::chrono::seconds(5);
  RuntimeJob job(2, options);
  std::atomic<int> released = 0, closed = 0;
  run_ranks(2, [&](const RankRun& run) {
    Options mine = options;
    if (run.rank() == 1) mine.operation_timeout = std::chrono::milliseconds(250);
    Runtime runtime = job.join(run.rank(), mine);
    std::optional<Group> group;
    while (!group) {
      error_of([&] { group = runtime.group({0, 1}, {.arena_bytes = std::size_t{1} << 18}); });
    }
    if (run.rank() == 1) {
      require(
          error_of([&] { group->join(); }).find("not all ranks have joined") != std::string::npos,
          "no time-out");
      group.reset();
      meet(run, released);
    } else {
      meet(run, released);
      group->join();
      group->close();
    }
    meet(run, closed);
  });
}

}  // namespace
}  // namespace kolo::test
