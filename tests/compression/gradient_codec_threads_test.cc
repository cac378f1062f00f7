#include <gtest/gtest.h>

#include "tests/compression/compressed_cases.h"
#include "tests/support/rank_harness.h"

namespace kolo::test {
namespace {

// Each rank has a thread here, so that ThreadSanitizer detects races.
TEST_F(GradientCodecTest, RanksMayBeThreads) {
  for (const std::vector<int>& nodes : {std::vector<int>{3}, {2, 2}}) {
    const SparseOptions options = options_of({5000}, 0.02);
    CompressedJob job(nodes, options), expected(nodes, options);
    for (int step = 0; step < 3; ++step) {
      const auto gradients = gradients_of(random_, options, job.size(), normal);
      ASSERT_TRUE(expected.step(gradients));
      run_ranks(job.size(), [&](const RankRun& run) {
        CompressedRank& rank = job.rank(run.rank());
        rank.start(gradients[static_cast<std::size_t>(run.rank())]);
        run.poll_until([&] { return rank.poll(); }, [&] { return !rank.busy(); });
        rank.codec->commit();
      });
      for (int rank = 0; rank < job.size(); ++rank) {
        ASSERT_EQ(bits_of(job.rank(rank).results()), bits_of(expected.rank(0).results()));
      }
    }
  }
}

}  // namespace
}  // namespace kolo::test
