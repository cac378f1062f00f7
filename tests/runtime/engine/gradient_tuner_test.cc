#include "runtime/engine/gradient_tuner.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <utility>
#include <vector>

namespace kolo {
namespace {

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;

class GradientTunerTest : public testing::Test {
 protected:
  ~GradientTunerTest() override { std::filesystem::remove(path_); }

  GradientTuner tuner(TunedSet set) { return {std::move(set), CalibrationFile(path_, "2 ranks")}; }
  static TunedSet set() {
    return {.name = "model",
            .plan = "model: 7",
            .first = {.fusion_bytes = 2 * kMiB, .chunk_bytes = 512 * kKiB}};
  }

  /// Runs steps as decisions ask for; returns the last decision.
  SizeDecision run(GradientTuner& tuner, std::size_t best_fusion,
                   const GradientTuner::WayOfTravel& way_of) {
    SizeDecision decision = tuner.decide({}, way_of);
    decisions_ = {decision};
    while (decision.iterations > 0 && decisions_.size() < 100) {
      const auto fusion = static_cast<double>(decision.fusion_bytes > 0 ? decision.fusion_bytes
                                                                        : set().first.fusion_bytes);
      const double away = std::abs(std::log2(fusion / static_cast<double>(best_fusion)));
      const std::vector<double> steps(decision.iterations - 1, 1000 + 100 * away);
      decision = tuner.decide(steps, way_of);
      decisions_.push_back(decision);
    }
    return decision;
  }

  static std::optional<std::uint64_t> each_its_own(const TuneCandidate& candidate) {
    return candidate.fusion_bytes * 31 + candidate.chunk_bytes;
  }

  std::vector<SizeDecision> decisions_;
  const std::string path_ =
      testing::TempDir() + "gradient_tuner_test." + std::to_string(::getpid());
};

TEST_F(GradientTunerTest, DecidesRemembersAndBeginsWithTheAnswer) {
  GradientTuner first = tuner(set());
  const SizeDecision answer = run(first, 512 * kKiB, each_its_own);
  EXPECT_EQ(answer.fusion_bytes, 512 * kKiB);
  EXPECT_EQ(answer.chunk_bytes, 0u) << "no other chunks were faster";
  EXPECT_EQ(answer.iterations, 0u);
  EXPECT_EQ(decisions_.front().fusion_bytes, 0u) << "it begins with the cost model's";

  GradientTuner second = tuner(set());
  EXPECT_EQ(run(second, 16 * kMiB, each_its_own), answer);
  EXPECT_EQ(decisions_.size(), 1u);
}

TEST_F(GradientTunerTest, TriesNoTwoSizesThatTravelAlike) {
  GradientTuner one_bucket = tuner(set());
  const SizeDecision answer =
      run(one_bucket, 2 * kMiB, [](const TuneCandidate&) { return std::uint64_t{7}; });
  EXPECT_EQ(answer, SizeDecision{});
  EXPECT_EQ(decisions_.size(), 2u) << "the first alone is measured";
}

// One gradient is larger than most buckets: nothing changes until it shares one with the others.
TEST_F(GradientTunerTest, LooksBeyondSizesThatTravelAlike) {
  GradientTuner tuned = tuner(set());
  const auto way_of = [](const TuneCandidate& candidate) -> std::optional<std::uint64_t> {
    return candidate.fusion_bytes < 16 * kMiB ? 0 : candidate.fusion_bytes;
  };
  EXPECT_EQ(run(tuned, 16 * kMiB, way_of).fusion_bytes, 16 * kMiB);
}

TEST_F(GradientTunerTest, TriesNothingForWhichThereIsNoRoom) {
  GradientTuner tight = tuner(set());
  const auto way_of = [](const TuneCandidate& candidate) {
    return candidate.fusion_bytes < 2 * kMiB ? std::nullopt : each_its_own(candidate);
  };
  EXPECT_EQ(run(tight, 256 * kKiB, way_of), SizeDecision{});
  for (const SizeDecision& decision : decisions_) {
    EXPECT_TRUE(decision.fusion_bytes == 0 || decision.fusion_bytes > 2 * kMiB);
  }
}

TEST_F(GradientTunerTest, KeepsWhatItMayNotTune) {
  TunedSet fixed = set();
  fixed.tunes_fusion = false;
  GradientTuner chunks = tuner(fixed);
  run(chunks, 512 * kKiB, each_its_own);
  EXPECT_GT(decisions_.size(), 2u);
  for (const SizeDecision& decision : decisions_) EXPECT_EQ(decision.fusion_bytes, 0u);

  fixed.plan = "another";
  fixed.tunes_chunks = false;
  GradientTuner nothing = tuner(fixed);
  EXPECT_EQ(run(nothing, 512 * kKiB, each_its_own), SizeDecision{});
  EXPECT_EQ(decisions_.size(), 1u);
}

TEST(SizeDecision, TravelsInOneWord) {
  for (const SizeDecision& decision :
       {SizeDecision{}, SizeDecision{.fusion_bytes = 64 * kMiB, .chunk_bytes = 0, .iterations = 16},
        SizeDecision{.fusion_bytes = 0, .chunk_bytes = 64 * kKiB, .iterations = 0},
        SizeDecision{.fusion_bytes = 8192 * kMiB, .chunk_bytes = kKiB, .iterations = 0xFFFF}}) {
    EXPECT_EQ(size_decision(to_word(decision)), decision);
  }
}

}  // namespace
}  // namespace kolo
