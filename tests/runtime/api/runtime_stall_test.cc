// Tests tensors that some ranks do not submit for a long time.

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/runtime/api/runtime_calls.h"

namespace kolo::test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

TEST(RuntimeStall, IsTheSameErrorOnAllRanksAfterStallAbort) {
  constexpr int kRanks = 3;
  Options options = test_options();
  options.stall_abort = std::chrono::milliseconds(200);
  Texts errors(kRanks);
  std::atomic<int> given_up{0};
  RuntimeJob job(kRanks, options);
  run_ranks(kRanks, [&](const RankRun& run) {
    Runtime runtime = job.join(run.rank());
    all_reduce_works(runtime, "first");
    // Rank 1 is busy until the other ranks have given up.
    if (run.rank() == 1) run.poll_until([] { return false; }, [&] { return given_up == 2; });
    std::vector<float> data(10);
    errors.set(run.rank(), error_of([&] { runtime.all_reduce("late", view(data)).wait(); }));
    ++given_up;
    all_reduce_works(runtime, "next");
  });
  EXPECT_THAT(errors.all(), Each(errors.all()[0]));
  EXPECT_THAT(errors.all()[0],
              AllOf(HasSubstr("stall"),
                    HasSubstr("agree of 'late': no progress for 0.2 s: ranks 0, 2 wait for "
                              "'late'"),
                    HasSubstr("which rank 1 has not submitted")));
}

TEST(RuntimeStall, AGroupWithALongerTimeoutWaitsLonger) {
  Options options = test_options();
  options.operation_timeout = std::chrono::seconds(1);
  std::atomic<bool> has_waited{false};
  RuntimeJob job(2, options);
  run_ranks(2, [&](const RankRun& run) {
    Runtime runtime = job.join(run.rank());
    Group slow = runtime.group(
        {0, 1}, {.arena_bytes = 1 << 20, .operation_timeout = std::chrono::minutes(1)});
    std::thread waits_twice;
    if (run.rank() == 0) {
      waits_twice = std::thread([&] {
        for (const auto* name : {"late", "later"}) {
          std::vector<float> other(10);
          EXPECT_THAT(error_of([&] { runtime.all_reduce(name, view(other)).wait(); }),
                      AllOf(HasSubstr(name), HasSubstr("no ")));  // A stall or a timeout.
        }
        has_waited = true;
      });
    } else {
      run.poll_until([] { return false; }, [&] { return has_waited.load(); });
    }
    std::vector<float> data(10);
    EXPECT_EQ(error_of([&] { slow.all_reduce("kept", view(data)).wait(); }), "");
    if (waits_twice.joinable()) waits_twice.join();
  });
}

// No thread of a rank waits, so each rank could still submit the tensors that others wait for. Only
// the order of the calls shows that the ranks have diverged.
TEST(RuntimeStall, ADifferentCallAtOnePlaceOfAnOrderIsAnErrorOnAllRanks) {
  constexpr int kRanks = 3;
  Texts errors(kRanks);
  RuntimeJob job(kRanks, test_options());
  run_ranks(kRanks, [&](const RankRun& run) {
    Runtime runtime = job.join(run.rank());
    runtime.keep_order();
    all_reduce_works(runtime, "");
    all_reduce_works(runtime, "named");
    std::vector<float> data(10);
    Ticket ticket =
        run.rank() == 1 ? runtime.broadcast("", view(data), 2) : runtime.all_reduce("", view(data));
    run.poll_until([] { return false; }, [&] { return ticket.done(); });
    errors.set(run.rank(), error_of([&] { ticket.wait(); }));
    all_reduce_works(runtime, "");
    EXPECT_THAT(error_of([&] { runtime.join(); }), HasSubstr("keeps one order"));
  });
  EXPECT_THAT(errors.all(), Each(errors.all()[0]));
  EXPECT_THAT(errors.all()[0],
              AllOf(HasSubstr("mismatch"), HasSubstr("ranks disagree: "),
                    HasSubstr("ranks 0, 2 submit 'all_reduce float32 [10] sum'"),
                    HasSubstr("rank 1 submits 'broadcast float32 [10] from rank 2'")));
}

// The table names the busy rank and its last action, which the waiting ranks do not report.
TEST(RuntimeStall, ATableSaysWhatTheMissingRankDidLast) {
  Options options = test_options();
  options.mismatch_after = std::chrono::milliseconds(5);
  options.stall_warn = std::chrono::milliseconds(20);
  options.stall_abort = std::chrono::milliseconds(200);
  std::atomic<bool> has_given_up{false};
  RuntimeJob job(2, options);
  ::testing::internal::CaptureStderr();
  run_ranks(2, [&](const RankRun& run) {
    Runtime runtime = job.join(run.rank());
    all_reduce_works(runtime, "first");
    if (run.rank() == 1) run.poll_until([] { return false; }, [&] { return has_given_up.load(); });
    std::vector<float> data(10);
    error_of([&] { runtime.all_reduce("late", view(data)).wait(); });
    has_given_up = true;
  });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("1 tensor has waited for ranks that have not submitted it:\n"
                        "  'late': all_reduce float32 [10] sum\n    for 0 s; waiting: rank 0; "
                        "missing: rank 1\nwhat the missing ranks did last:\n"
                        "  rank 1: completed 'first': all_reduce float32 [100] sum, "));
}

}  // namespace
}  // namespace kolo::test
