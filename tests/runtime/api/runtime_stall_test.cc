// Tensors that some ranks do not submit for long.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <vector>

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
    // Rank 1 is busy until the others have given up.
    if (run.rank() == 1) run.poll_until([] { return false; }, [&] { return given_up == 2; });
    std::vector<float> data(10);
    errors.set(run.rank(), error_of([&] { runtime.all_reduce("late", view(data)); }));
    ++given_up;
    all_reduce_works(runtime, "next");
  });
  EXPECT_THAT(errors.all(), Each(errors.all()[0]));
  EXPECT_THAT(errors.all()[0], AllOf(HasSubstr("stall"),
                                     HasSubstr("no progress for 0.2 s: ranks 0, 2 wait for "
                                               "'late'"),
                                     HasSubstr("which rank 1 has not submitted")));
}

}  // namespace
}  // namespace kolo::test
