#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "trainer/data/data_loader.h"
#include "trainer/random.h"

namespace kolo::trainer {
namespace {

/// Samples that depend on index and epoch. Some are slow, and one fails.
class NumberedDataset final : public Dataset {
 public:
  explicit NumberedDataset(std::size_t size) : size_(size) {}

  std::size_t size() const override { return size_; }
  const SampleFormat& format() const override { return format_; }
  void copy(std::size_t index, std::uint64_t epoch, std::span<const TensorSlot> inputs,
            std::span<const TensorSlot> targets) const override {
    if (static_cast<std::int64_t>(index) == broken.load()) throw std::runtime_error("sample 7");
    if (Random(index, epoch).below(8) == 0) std::this_thread::yield();
    inputs[0].as<std::int32_t>()[0] = static_cast<std::int32_t>(index);
    inputs[0].as<std::int32_t>()[1] = static_cast<std::int32_t>(epoch);
    targets[0].as<std::int32_t>()[0] = -static_cast<std::int32_t>(index);
    ++copied;
  }

  std::atomic<std::int64_t> broken = -1;
  mutable std::atomic<std::size_t> copied = 0;

 private:
  std::size_t size_;
  SampleFormat format_{.inputs = {{.name = "x", .dtype = DType::kInt32, .shape = {2}}},
                       .targets = {{.name = "y", .dtype = DType::kInt32}}};
};

std::vector<std::int32_t> contents(const Batch& batch) {
  std::vector<std::int32_t> all;
  for (const TensorView& view : {batch.inputs[0], batch.targets[0]}) {
    const auto elements = view.as<std::int32_t>();
    all.insert(all.end(), elements.begin(), elements.end());
  }
  for (const std::uint64_t number :
       {std::uint64_t{batch.samples}, std::uint64_t{batch.global_samples}, batch.epoch,
        batch.first_position}) {
    all.push_back(static_cast<std::int32_t>(number));
  }
  return all;
}

TEST(PrefetchTest, ServesWhatTheLoopWouldLoad) {
  const NumberedDataset data(83);
  for (const bool is_shuffled : {true, false}) {
    DataLoader::Options options{.ranks = 2, .rank = 1, .batch = 3, .accumulation = 2};
    if (is_shuffled) options.seed = 9;
    DataLoader plain(data, options);
    for (const std::size_t threads : {1u, 2u, 5u}) {
      options.threads = threads;
      DataLoader ahead(data, options);
      for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
        for (std::size_t step = 0; step < plain.steps_per_epoch(); ++step) {
          for (std::size_t pass = 0; pass < 2; ++pass) {
            ASSERT_EQ(contents(ahead.load(epoch, step, pass)),
                      contents(plain.load(epoch, step, pass)))
                << threads << " threads, epoch " << epoch << ", step " << step;
          }
        }
      }
    }
  }
}

TEST(PrefetchTest, ABatchStaysAsItIsUntilTheNextCall) {
  const NumberedDataset data(60);
  DataLoader loader(data, {.ranks = 1, .rank = 0, .batch = 2, .seed = 3, .threads = 2});
  for (std::size_t step = 0; step < loader.steps_per_epoch(); ++step) {
    const Batch batch = loader.load(0, step);
    const std::vector<std::int32_t> before = contents(batch);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // time for a thread to do harm
    ASSERT_EQ(contents(batch), before);
  }
}

// Steps may come in any order after a checkpoint, and in evaluation, which restarts at step 0.
TEST(PrefetchTest, AnyStepMayComeNext) {
  const NumberedDataset data(40);
  DataLoader::Options options{.ranks = 1, .rank = 0, .batch = 4, .seed = 3};
  DataLoader plain(data, options);
  options.threads = 3;
  DataLoader ahead(data, options);
  Random random(1);
  for (int i = 0; i < 200; ++i) {
    const std::uint64_t epoch = random.below(3);
    const std::size_t step = random.below(plain.steps_per_epoch());
    ASSERT_EQ(contents(ahead.load(epoch, step)), contents(plain.load(epoch, step)));
  }
}

TEST(PrefetchTest, WithoutASeedNothingIsPreparedBeyondTheEpoch) {
  const NumberedDataset data(10);
  {
    DataLoader loader(data, {.ranks = 1, .rank = 0, .batch = 2, .threads = 2});
    for (std::size_t step = 0; step < 5; ++step) loader.load(0, step);
  }
  EXPECT_EQ(data.copied, 10u);
}

TEST(PrefetchTest, AnErrorSurfacesWhereItsBatchIsLoaded) {
  NumberedDataset data(20);
  data.broken = 7;
  DataLoader loader(data, {.ranks = 1, .rank = 0, .batch = 2, .threads = 2});
  for (std::size_t step = 0; step < 3; ++step) loader.load(0, step);
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      loader.load(0, 3);
      FAIL();
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "sample 7");
    }
  }
  data.broken = -1;
  EXPECT_EQ(contents(loader.load(0, 3))[0], 6);
}

TEST(PrefetchTest, BatchesArePreparedWhileOneIsInUse) {
  const NumberedDataset data(40);
  DataLoader loader(data, {.ranks = 1, .rank = 0, .batch = 2, .threads = 2});
  loader.load(0, 5);
  while (data.copied < 3 * 2) std::this_thread::yield();
  loader.load(0, 6);
  while (data.copied < 4 * 2) std::this_thread::yield();
}

TEST(PrefetchTest, TheLoaderKnowsHowLongItWasWaitedFor) {
  const NumberedDataset data(4);
  DataLoader loader(data, {.ranks = 1, .rank = 0, .batch = 2});
  EXPECT_EQ(loader.waited().count(), 0);
  loader.load(0, 0);
  const auto first = loader.waited();
  EXPECT_GT(first.count(), 0);
  loader.load(0, 1);
  EXPECT_GT(loader.waited(), first);
}

TEST(LoaderThreadsTest, OnlyACoreThatNobodyComputesOnPreparesBatches) {
  const auto spare = [](std::size_t own, std::size_t machine, std::size_t ranks,
                        std::size_t compute_threads) {
    return spare_loader_threads({own, machine, ranks, compute_threads});
  };
  EXPECT_EQ(spare(2, 2, 1, 1), 1u);
  EXPECT_EQ(spare(2, 2, 1, 2), 0u);
  EXPECT_EQ(spare(2, 2, 2, 1), 0u);
  EXPECT_EQ(spare(2, 2, 4, 1), 0u);
  EXPECT_EQ(spare(1, 8, 2, 1), 0u);  // each rank is bound to one core
  EXPECT_EQ(spare(4, 8, 2, 2), 1u);
  const LoaderCores here = find_loader_cores(3, 2);
  EXPECT_GE(here.machine, here.own);
  EXPECT_GE(here.own, 1u);
  EXPECT_EQ(here.ranks, 3u);
  EXPECT_EQ(here.compute_threads, 2u);
}

}  // namespace
}  // namespace kolo::trainer
