// Tests how runtimes end, and that they leave nothing behind.

#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include "comm/base/unique_handle.h"
#include "tests/runtime/api/runtime_calls.h"

namespace kolo::test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

TEST(RuntimeLife, AnExceptionOnOneRankFailsTheOthersInsteadOfHangingThem) {
  constexpr int kRanks = 3;
  Texts errors(kRanks), later(kRanks);
  std::atomic<int> done{0};
  RuntimeJob job(kRanks, test_options());
  run_ranks(kRanks, [&](const RankRun& run) {
    try {
      Runtime runtime = job.join(run.rank());
      all_reduce_works(runtime, "x");
      meet(run, done);
      if (run.rank() == 1) throw std::logic_error("bug of the user");
      errors.set(run.rank(), error_of([&] { all_reduce_works(runtime, "x"); }));
      later.set(run.rank(), error_of([&] { runtime.barrier().wait(); }));
    } catch (const std::logic_error&) {
    }
  });
  for (int rank : {0, 2}) {
    const auto index = static_cast<std::size_t>(rank);
    EXPECT_THAT(errors.all()[index],
                AllOf(HasSubstr("peer lost"),
                      HasSubstr("rank 1: left the job: an exception destroyed the runtime")));
    EXPECT_EQ(later.all()[index], errors.all()[index]);
  }
}

// The last rank registers its set after the others have timed out once. They register again.
TEST(RuntimeLife, ARegistrationThatHasTimedOutCanBeRepeated) {
  constexpr int kRanks = 3;
  Options options = test_options();
  options.operation_timeout = std::chrono::seconds(3);
  options.mismatch_after = std::chrono::minutes(5);  // no rank counts as stuck
  options.stall_abort = std::chrono::minutes(5);
  std::atomic<int> late{0};
  RuntimeJob job(kRanks, options);
  run_ranks(kRanks, [&](const RankRun& run) {
    Runtime runtime = job.join(run.rank());
    const std::vector<GradientSpec> gradients{{.name = "g", .shape = {100}}};
    if (run.rank() == kRanks - 1) {
      run.poll_until([] { return false; }, [&] { return late == kRanks - 1; });
    } else {
      require(error_of([&] { runtime.register_gradients("model", gradients); }).find("no result") !=
                  std::string::npos,
              "registered without the last rank");
      require(!error_of([&] {
                 runtime.register_gradients("model", {{.name = "g", .shape = {101}}});
               }).empty(),
              "took other gradients");
      ++late;
    }
    GradientSet set = runtime.register_gradients("model", gradients);
    auto* const values = static_cast<float*>(set.view(0).data);
    std::fill_n(values, 100, static_cast<float>(run.rank()));
    set.ready(0);
    set.wait();
    require(values[99] == 1.0F, "average");
  });
}

// Rank 0's registration times out, and then fails because rank 1 registers another set.
TEST(RuntimeLife, ARegistrationThatHasTimedOutAndFailedCanBeCorrected) {
  Options options = test_options();
  options.operation_timeout = std::chrono::milliseconds(500);
  options.stall_abort = std::chrono::minutes(5);
  RuntimeJob job(2, options);
  std::atomic<int> timed_out = 0, failed = 0;
  run_ranks(2, [&](const RankRun& run) {
    Options mine = options;
    if (run.rank() == 1) mine.operation_timeout = std::chrono::seconds(60);
    Runtime runtime = job.join(run.rank(), mine);
    const auto add = [&](std::size_t count) {
      return error_of(
          [&] { runtime.register_gradients("model", {{.name = "g", .shape = {count}}}); });
    };
    if (run.rank() == 0) {
      const std::string late = add(100);
      require(late.find("no result") != std::string::npos, late);
    }
    meet(run, timed_out);
    if (run.rank() == 1) require(add(101).find("mismatch: ") == 0, "no mismatch");
    meet(run, failed);
    runtime.barrier().wait();  // rank 0 knows of the failure
    std::string error;
    do {
      error = add(101);
      require(error.empty() || error.find("time-out: ") == 0, error);
    } while (!error.empty());
  });
}

// There is no peer whose end could wake the engine.
TEST(RuntimeLife, AnExceptionInAJobOfOneRankEndsItsEngine) {
  RuntimeJob job(1, test_options());
  try {
    Runtime runtime = job.join(0);
    all_reduce_works(runtime, "x");
    throw std::logic_error("bug of the user");
  } catch (const std::logic_error&) {
  }
}

TEST(RuntimeLife, AnExceptionWhileGradientsAreUnderWayReachesTheirWait) {
  constexpr int kRanks = 2;
  Texts errors(kRanks);
  std::atomic<int> registered{0};
  RuntimeJob job(kRanks, test_options());
  run_ranks(kRanks, [&](const RankRun& run) {
    try {
      Runtime runtime = job.join(run.rank());
      GradientSet set = runtime.register_gradients(
          "model", {{.name = "a", .shape = {1}}, {.name = "b", .shape = {1}}});
      meet(run, registered);
      if (run.rank() == 0) {
        set.ready(1);
        throw std::logic_error("bug of the user");
      }
      errors.set(run.rank(), error_of([&] {
                   set.ready(1);
                   set.ready(0);
                   set.wait();
                 }));
    } catch (const std::logic_error&) {
    }
  });
  EXPECT_THAT(errors.all()[1], HasSubstr("rank 0: left the job"));
}

// The destructor completes the iteration, so no thread or peer uses the memory afterwards.
TEST(RuntimeLife, AGradientSetThatGoesEndsItsIterationFirst) {
  RuntimeJob(2, test_options()).run([](Runtime& runtime) {
    for (int turn = 0; turn < 20; ++turn) {
      std::vector<float> large(1 << 18, static_cast<float>(runtime.rank() + turn));
      std::vector<double> small(3, static_cast<double>(runtime.rank()));
      const auto marked = [&] {
        GradientSet set = runtime.register_gradients(
            "model", {{.name = "large", .data = large}, {.name = "small", .data = small}});
        set.ready(1);
        set.ready(0);
        return set;
      };
      if (turn % 2 == 0) {
        marked();
      } else {
        GradientSet assigned = marked();
        std::vector<float> other(1);
        assigned = runtime.register_gradients("other", {{.name = "g", .data = other}});
      }
      require(std::ranges::count(large, static_cast<float>(turn) + 0.5F) == 1 << 18, "large");
      require(std::ranges::count(small, 0.5) == 3, "small");
    }
  });
}

// The iteration cannot end, so the rank leaves the job, and the other ranks get the reason.
TEST(RuntimeLife, AGradientSetThatGoesUnmarkedEndsTheJob) {
  constexpr int kRanks = 3;
  Texts errors(kRanks);
  RuntimeJob(kRanks, test_options()).run([&](Runtime& runtime) {
    std::vector<float> large(1 << 18, 1), small(3, 1);
    const std::vector<GradientSpec> gradients{{.name = "large", .data = large},
                                              {.name = "small", .data = small}};
    errors.set(runtime.rank(), error_of([&] {
                 GradientSet set = runtime.register_gradients("model", gradients);
                 set.ready(0);
                 if (runtime.rank() != 1) {
                   set.ready(1);
                   set.wait();
                 }
               }));
    if (runtime.rank() == 1) errors.set(1, error_of([&] { runtime.barrier().wait(); }));
  });
  EXPECT_THAT(errors.all(),
              Each(AllOf(HasSubstr("peer lost"), HasSubstr("rank 1: left the job"),
                         HasSubstr("gradient set 'model' in the middle of an iteration"),
                         HasSubstr("without 'small'"))));
}

// The other ranks do not call. The rank cannot know why, so the error asks whether they do.
TEST(RuntimeLife, ASecondRuntimeOfThisRankAloneIsAskedAbout) {
  RuntimeJob job(1, test_options());
  const Runtime first = job.join(0);
  // a port of this test, on which no process listens
  const FileDescriptor port(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{
      .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(port.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::getsockname(port.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::map<std::string, std::string> variables{
      {"RANK", "1"},
      {"WORLD_SIZE", "2"},
      {"MASTER_ADDR", "127.0.0.1"},
      {"MASTER_PORT", std::to_string(ntohs(address.sin_port))}};
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  Options options = test_options();
  options.connect_timeout = std::chrono::milliseconds(300);
  EXPECT_THAT(error_of([&] { Runtime::from_environment(options); }),
              HasSubstr("this process has a runtime already: does every rank open a second one?"));
  for (const auto& [name, value] : variables) ::unsetenv(name.c_str());
}

std::size_t entries(const char* folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

TEST(RuntimeLife, LeavesNoDescriptorAndNoThreadBehind) {
  const auto live = [] {
    RuntimeJob(2, test_options()).run([](Runtime& runtime) {
      all_reduce_works(runtime, "x");
      runtime.register_gradients("model", {{.name = "g", .shape = {100}}});
    });
  };
  const auto die = [] {
    RuntimeJob job(2, test_options());
    std::atomic<int> joined{0};
    run_ranks(2, [&](const RankRun& run) {
      try {
        Runtime runtime = job.join(run.rank());
        meet(run, joined);
        if (run.rank() == 0) throw std::logic_error("bug of the user");
        error_of([&] { runtime.barrier().wait(); });
      } catch (const std::logic_error&) {
      }
    });
  };
  live();  // makes the allocations of the first use
  const std::size_t descriptors = entries("/proc/self/fd");
  const std::size_t threads = entries("/proc/self/task");
  for (int cycle = 0; cycle < 20; ++cycle) live();
  for (int cycle = 0; cycle < 3; ++cycle) die();
  EXPECT_EQ(entries("/proc/self/fd"), descriptors);
  // The kernel removes a joined thread from /proc a moment later.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (entries("/proc/self/task") > threads && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_EQ(entries("/proc/self/task"), threads);
}

}  // namespace
}  // namespace kolo::test
