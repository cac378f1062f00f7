// Tests groups of whole runtimes, with a thread per rank, as programs use them.

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <span>
#include <stdexcept>
#include <thread>

#include "tests/runtime/api/runtime_calls.h"

namespace kolo::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::size_t kSmall = std::size_t{1} << 17;

/// Sums one value per rank over a group: the rank in the job plus one.
void group_sums(Group& group, int rank_in_job, const std::string& name = "x") {
  std::vector<float> data(100, static_cast<float>(rank_in_job + 1));
  group.all_reduce(name, view(data)).wait();
  float expected = 0;
  for (int rank : group.ranks_of_job()) expected += static_cast<float>(rank + 1);
  require(std::ranges::all_of(data, [=](float value) { return value == expected; }), "group sum");
}

TEST(RuntimeGroups, OverlapNestAndSplit) {
  RuntimeJob(5, test_options()).run([](Runtime& runtime) {
    const int rank = runtime.rank();
    for (int turn = 0; turn < 3; ++turn) {
      std::optional<Group> parity =
          runtime.split(rank % 2, -rank, {.name = "parity", .arena_bytes = kSmall});
      require(parity.has_value() && parity->size() == (rank % 2 == 0 ? 3 : 2), "size");
      require(parity->ranks_of_job().front() == (rank % 2 == 0 ? 4 : 3), "ordered by key");
      group_sums(*parity, rank);
      if (rank <= 2) {
        Group low = runtime.group({1, 2, 0}, {.name = "low", .arena_bytes = kSmall});
        require(low.rank() == (rank + 2) % 3, "ordered as given");
        group_sums(low, rank);
        if (rank >= 1) {
          Group nested = low.group({1, 0}, {.arena_bytes = kSmall});
          require(nested.ranks_of_job() == std::vector<int>{2, 1}, "ranks of a group of a group");
          group_sums(nested, rank);
        }
        low.close();
      }
      group_sums(runtime, rank, "all");
      require(
          !runtime.split(rank == 0 ? -1 : 3, 0, {.arena_bytes = kSmall}).has_value() == (rank == 0),
          "no color");
    }
  });
}

TEST(RuntimeGroups, MeetNoOperationOfTheProgram) {
  RuntimeJob(2, test_options()).run([](Runtime& runtime) {
    // The program's operations have the names "barrier" and "split". They must not be matched with
    // the runtime's barrier and split, which ranks call in another order relative to them.
    std::vector<float> sum{static_cast<float>(runtime.rank() + 1), 10};
    std::vector<float> all(2);
    const std::vector<float> mine{static_cast<float>(runtime.rank() + 5)};
    const auto add = [&] { return runtime.all_reduce("barrier", view(sum)); };
    const auto gather = [&] { return runtime.all_gather("split", {mine, all}); };
    if (runtime.rank() == 0) {
      Ticket added = add(), gathered = gather();
      runtime.barrier().wait();
      require(runtime.split(0, 0, {.arena_bytes = kSmall})->size() == 2, "split");
      added.wait();
      gathered.wait();
    } else {
      runtime.barrier().wait();
      require(runtime.split(0, 0, {.arena_bytes = kSmall})->size() == 2, "split");
      add().wait();
      gather().wait();
    }
    require(sum == std::vector<float>{3, 20} && all == std::vector<float>{5, 6}, "values");
  });
}

TEST(RuntimeGroups, FollowNodes) {
  RuntimeJob(3, test_options()).run([](Runtime& runtime) {
    Group node = runtime.node_group({.arena_bytes = kSmall});
    require(node.size() == 3 && node.rank() == runtime.rank(), "all on one node");
    group_sums(node, runtime.rank());
    Group cross = runtime.cross_group({.arena_bytes = kSmall});
    require(cross.size() == 1 && cross.ranks_of_job().front() == runtime.rank(), "alone");
    group_sums(cross, runtime.rank());
  });
}

TEST(RuntimeGroups, CombineGradients) {
  RuntimeJob(3, test_options()).run([](Runtime& runtime) {
    if (runtime.rank() == 1) return;
    Group group = runtime.group({2, 0}, {.name = "ends", .arena_bytes = std::size_t{1} << 18});
    std::vector<float> mine(3000, static_cast<float>(runtime.rank()));
    GradientSet gradients =
        group.register_gradients("model", {{.name = "arena", .shape = {3000}},
                                           {.name = "mine", .shape = {3000}, .data = mine.data()}});
    for (int iteration = 0; iteration < 5; ++iteration) {
      auto* arena = static_cast<float*>(gradients.view(0).data);
      std::fill_n(arena, 3000, static_cast<float>(runtime.rank() + iteration));
      std::ranges::fill(mine, static_cast<float>(runtime.rank()));
      gradients.ready(1);
      gradients.ready(0);
      gradients.wait();
      require(arena[2999] == static_cast<float>(1 + iteration), "average in the arena");
      require(mine[0] == 1, "average in user memory");
    }
  });
}

TEST(RuntimeGroups, OfSeveralThreadsMoveIndependently) {
  RuntimeJob(3, test_options()).run([](Runtime& runtime) {
    const int rank = runtime.rank();
    std::atomic<bool> failed{false};
    const auto work = [&](const std::vector<int>& ranks, const std::string& name) {
      try {
        for (int turn = 0; turn < 5; ++turn) {
          Group group = runtime.group(ranks, {.name = name, .arena_bytes = kSmall});
          for (int use = 0; use < 20; ++use) group_sums(group, rank);
          group.barrier().wait();
        }
      } catch (const std::exception& e) {
        failed = true;
      }
    };
    std::vector<std::thread> threads;
    for (int first = 0; first < 3; ++first) {
      const int second = (first + 1) % 3;
      if (rank != first && rank != second) continue;
      threads.emplace_back(work, std::vector<int>{first, second}, "pair" + std::to_string(first));
    }
    threads.emplace_back(work, std::vector<int>{2, 1, 0}, "all");
    for (std::thread& thread : threads) thread.join();
    require(!failed, "a thread has failed");
  });
}

// Overlapping groups send messages with equal tags and ranks in one order, and receive them in
// another. Some messages are short, and some wait for their receive.
TEST(RuntimeGroups, KeepTheirMessagesApart) {
  RuntimeJob(4, test_options()).run([](Runtime& runtime) {
    Group upward = runtime.group({0, 1, 2, 3}, {.name = "upward", .arena_bytes = kSmall});
    Group downward = runtime.group({3, 2, 1, 0}, {.name = "downward", .arena_bytes = kSmall});
    Group even_odd = *runtime.split(runtime.rank() % 2, runtime.rank(), {.arena_bytes = kSmall});
    const std::vector<Group*> sent{&runtime, &upward, &downward, &even_odd};
    const std::vector<Group*> received{&downward, &even_odd, &upward, &runtime};
    for (const std::size_t count : {std::size_t{3}, std::size_t{100'000}}) {
      const auto value = [](const Group& group, int source) {
        return static_cast<float>(group.size() * 100 + group.ranks_of_job().front() * 10 + source);
      };
      std::vector<std::vector<float>> outgoing;
      std::vector<Ticket> tickets;
      for (Group* const group : sent) {
        outgoing.emplace_back(count, value(*group, group->rank()));
        tickets.push_back(
            group->send(view(outgoing.back()), (group->rank() + 1) % group->size(), 7));
      }
      for (Group* const group : received) {
        std::vector<float> data(count);
        const int source = (group->rank() + group->size() - 1) % group->size();
        const bool from_any = group == &upward || group == &even_odd;
        const Received got = group->recv(view(data), from_any ? kAnyRank : source, 7).received();
        require(got.source == source && got.count == count, "source and count");
        require(std::ranges::count(data, value(*group, source)) == std::ssize(data), "elements");
      }
      for (Ticket& ticket : tickets) ticket.wait();
    }
  });
}

TEST(RuntimeGroups, ReleasedInDifferentOrdersBlockNobody) {
  RuntimeJob(2, test_options()).run([](Runtime& runtime) {
    for (int turn = 0; turn < 20; ++turn) {
      std::optional<Group> one = runtime.group({0, 1}, {.name = "one", .arena_bytes = kSmall});
      std::optional<Group> other = runtime.group({0, 1}, {.name = "other", .arena_bytes = kSmall});
      group_sums(*one, runtime.rank());
      (runtime.rank() == 0 ? one : other).reset();
      (runtime.rank() == 0 ? other : one).reset();
    }
  });
}

TEST(RuntimeGroups, OutliveTheClosedJobInSilence) {
  testing::internal::CaptureStderr();
  RuntimeJob(2, test_options()).run([](Runtime& runtime) {
    Group own = runtime.group({runtime.rank()}, {.name = "own", .arena_bytes = kSmall});
    group_sums(own, runtime.rank());
    runtime.close();
  });
  EXPECT_THAT(testing::internal::GetCapturedStderr(), Not(HasSubstr("is closed")));
}

TEST(RuntimeGroups, ThatTimeOutGoOnWhenTheyAreCalledAgain) {
  Options options = test_options();
  options.operation_timeout = std::chrono::milliseconds(300);
  options.stall_abort = std::chrono::minutes(1);
  std::atomic<bool> timed_out{false};
  RuntimeJob(2, options).run([&](Runtime& runtime) {
    if (runtime.rank() == 1) {
      std::string error;
      try {
        runtime.group({0, 1}, {.name = "late", .arena_bytes = kSmall});
      } catch (const KoloError& e) {
        error = e.what();
      }
      require(error.find("'late' [0, 1]") != std::string::npos, error);
      timed_out = true;
      error = error_of([&] { runtime.group({0, 1}, {.name = "late", .arena_bytes = 2 * kSmall}); });
      require(error.find("usage: ") == 0 && error.find("same settings") != std::string::npos,
              error);
    } else {
      while (!timed_out) std::this_thread::yield();
    }
    Group group = runtime.group({0, 1}, {.name = "late", .arena_bytes = kSmall});
    group_sums(group, runtime.rank());
  });
}

// The collecting rank has no work of its own, so only the proposal can keep it awake.
TEST(RuntimeGroups, AreJudgedByACollectingRankThatMakesNoCall) {
  Options options = test_options();
  options.operation_timeout = std::chrono::seconds(20);
  options.stall_abort = std::chrono::milliseconds(200);
  std::atomic<bool> is_over{false};
  std::string error;
  RuntimeJob(2, options).run([&](Runtime& runtime) {
    if (runtime.rank() == 0) return is_over.wait(false);
    error = error_of([&] { runtime.group({0, 1}, {.name = "late", .arena_bytes = kSmall}); });
    is_over = true;
    is_over.notify_all();
  });
  EXPECT_THAT(error, HasSubstr("stall: group 'late' [0, 1]: "));
  EXPECT_THAT(error, HasSubstr("rank 0 of the job has not created it"));
}

/// Throws unless `call` fails with this code, and the group is named in the error's field and text.
void fails_in(const std::string& group, ErrorCode code, const std::function<void()>& call) {
  try {
    call();
  } catch (const KoloError& e) {
    const std::string text = e.what();
    require(e.error().code == code,
            "another error than " + std::string(to_string(code)) + ": " + text);
    require(e.error().group == group && text.starts_with("group " + group + ": "), text);
    return;
  }
  throw std::runtime_error("no error of class " + std::string(to_string(code)));
}

TEST(RuntimeGroups, NameThemselvesInTimeOuts) {
  Options options = test_options();
  options.operation_timeout = std::chrono::milliseconds(200);
  options.stall_abort = std::chrono::minutes(1);
  std::atomic<int> stages{0};  // stages that the last member has not reached yet
  RuntimeJob(2, options).run([&](Runtime& runtime) {
    Group group = runtime.group({1, 0}, {.name = "late", .arena_bytes = std::size_t{1} << 18});
    std::vector<float> one(1), other(1), received(1), gradient(1);
    const auto spec = [&] {
      return std::vector<GradientSpec>{{.name = "g", .shape = {1}, .data = gradient.data()}};
    };
    const auto late = [&](const std::function<void()>& call) {
      fails_in("'late' [1, 0]", ErrorCode::kTimeout, call);
    };
    if (runtime.rank() == 1) {
      late([&] { group.join(); });
      fails_in("'late' [1, 0]", ErrorCode::kUsage, [&] { group.barrier().wait(); });
      ++stages;
      while (!error_of([&] { group.join(); }).empty()) {
      }
      Ticket first = group.all_reduce("one", one), second = group.all_reduce("other", other);
      late([&] { first.wait(); });
      late([&] { group.recv(view(received), 1, 7).wait(); });
      late([&] { group.register_gradients("model", spec()); });
      ++stages;
      second.wait();
    } else {
      while (stages < 1) std::this_thread::yield();
      group.join();
      while (stages < 2) std::this_thread::yield();
      group.all_reduce("one", view(one)).wait();
      group.all_reduce("other", view(other)).wait();
    }
    GradientSet set = group.register_gradients("model", spec());
    if (runtime.rank() == 1) {
      set.ready(0);
      late([&] { set.wait(); });
      late([&] { set.wait(std::size_t{0}); });
      ++stages;
    } else {
      while (stages < 3) std::this_thread::yield();
      set.ready(0);
    }
    set.wait();
  });
}

TEST(RuntimeGroups, NameThemselvesInErrorsOfUse) {
  RuntimeJob(2, test_options()).run([&](Runtime& runtime) {
    Group group = runtime.group({1, 0}, {.arena_bytes = std::size_t{1} << 18});
    std::vector<float> data(3);
    const auto wrong = [](const std::function<void()>& call) {
      fails_in("[1, 0]", ErrorCode::kUsage, call);
    };
    wrong([&] { group.broadcast("x", view(data), 2).wait(); });
    wrong([&] { group.all_gather("x", data).wait(); });
    wrong([&] { group.all_to_all("x", Tensors()).wait(); });
    wrong([&] { group.send(view(data), 2, 0).wait(); });
    wrong([&] { group.group({0, 5}); });
    wrong([&] {
      const std::int64_t outside = 2;
      const TableRows rows{.table = {.height = 2, .width = 3, .dtype = DType::kFloat32},
                           .indices = std::span(&outside, 1),
                           .rows = data.data()};
      group.sparse_all_reduce("rows", rows).wait();
    });
    wrong([&] { group.register_gradients("", {}); });
    GradientSet set = group.register_gradients("model", {{.name = "g", .shape = {3}}});
    wrong([&] { set.ready(1); });
    wrong([&] { set.wait(); });
    set.ready(0);
    wrong([&] { set.ready(0); });
    wrong([&] { set.flush_residuals(); });
    set.wait();
    fails_in("[1, 0]", ErrorCode::kData, [&] { set.load_compression({}); });
    fails_in("[1, 0]", ErrorCode::kConfig, [&] {
      group.register_gradients("other", {{.name = "g", .shape = {3}, .compression = "zip"}});
    });
    const GradientSet newer = group.register_gradients("model", {{.name = "g", .shape = {3}}});
    wrong([&] { set.ready(0); });
    group.close();
    fails_in("[1, 0]", ErrorCode::kShutdown, [&] { group.barrier().wait(); });
    require(error_of([&] { runtime.broadcast("x", view(data), 2).wait(); }).find("group") ==
                std::string::npos,
            "the job is no group");
  });
}

TEST(RuntimeGroups, RefuseWrongRanks) {
  RuntimeJob(2, test_options()).run([](Runtime& runtime) {
    const auto refuses = [&](const std::vector<int>& ranks, const std::string& why) {
      try {
        runtime.group(ranks);
      } catch (const UsageError& e) {
        return std::string(e.what()).find(why) != std::string::npos;
      }
      return false;
    };
    require(refuses({0, 1, 2}, "rank 2"), "a rank that does not exist");
    require(refuses({0, 1, 0}, "rank 0 twice"), "twice");
    require(refuses({1 - runtime.rank()}, "without itself"), "without itself");
    require(refuses({}, "without itself"), "nobody");
    Group group = runtime.group({0, 1}, {.arena_bytes = kSmall});
    group.close();
    std::string error;
    try {
      group.barrier().wait();
    } catch (const KoloError& e) {
      error = e.what();
    }
    require(error.find("is closed") != std::string::npos, "closed: " + error);
    group_sums(runtime, runtime.rank());
  });
}

}  // namespace
}  // namespace kolo::test
