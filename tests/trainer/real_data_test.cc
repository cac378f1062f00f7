// Trains on data that is not part of this repository. KOLO_TEST_DATA names a directory with mnist/
// and others. The binary is separate, so that its skip hides no other test.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <ostream>
#include <string>

#include "runtime/api/kolo.h"
#include "trainer/catalog.h"
#include "trainer/compute/device.h"
#include "trainer/config.h"
#include "trainer/loop/learner.h"
#include "trainer/loop/training.h"

namespace kolo::trainer {
namespace {

/// A lower bound of the held-out accuracy of a model after some steps, too few for its best.
struct Floor {
  const char* model;
  const char* directory;
  std::size_t steps;
  double accuracy;
  void (*make_small)(Config& config) = nullptr;  ///< Reduces the time below that of the defaults.
};

void PrintTo(const Floor& floor, std::ostream* out) { *out << floor.model; }

void short_and_narrow(Config& config) {
  config.layers = 1;
  config.width = 64;
  config.max_length = 20;
}

class RealDataFloorTest : public testing::TestWithParam<Floor> {};

TEST_P(RealDataFloorTest, IsReached) {
  const Floor& floor = GetParam();
  const char* data = std::getenv("KOLO_TEST_DATA");
  if (data == nullptr) {
    GTEST_SKIP() << "KOLO_TEST_DATA does not name a directory with " << floor.directory << "/";
  }
  set_compute_threads(1);
  const Catalog catalog = built_in_catalog();
  Config config = default_config(catalog, floor.model);
  config.data = std::filesystem::path(data) / floor.directory;
  config.steps = floor.steps;
  if (floor.make_small != nullptr) floor.make_small(config);
  Runtime runtime = Runtime::from_environment(config.runtime);
  const Task task = make_task(config, catalog);
  const std::unique_ptr<Learner> learner = make_learner(config, runtime, task, catalog);
  const LrScheduleEntry& schedule = catalog.lr_schedules.at(config.lr_schedule);
  EXPECT_GT(train(config, runtime, task, schedule, *learner, {}).value().eval_metric,
            floor.accuracy);
  runtime.close();
}

INSTANTIATE_TEST_SUITE_P(Models, RealDataFloorTest,
                         testing::Values(Floor{"lenet", "mnist", 250, 0.95},
                                         Floor{"lstm", "trec", 170, 0.65},
                                         Floor{"bert", "trec", 250, 0.7, short_and_narrow}),
                         [](const auto& tested) { return std::string(tested.param.model); });

struct KnownSet {
  const char* directory;
  const char* task;
  std::size_t train;
  std::size_t held_out;
  std::size_t outputs;
};

// The sample counts are those that the authors of each set published.
TEST(RealDataTest, SetsHaveTheSizesThatTheirAuthorsGive) {
  const char* data = std::getenv("KOLO_TEST_DATA");
  if (data == nullptr) GTEST_SKIP() << "KOLO_TEST_DATA does not name a directory with trec/ …";
  const Catalog catalog = built_in_catalog();
  for (const KnownSet& set : {KnownSet{"trec", "text-classification", 5452, 500, 6},
                              KnownSet{"sst2", "text-classification", 6920, 1821, 2},
                              KnownSet{"sms_spam", "text-classification", 4460, 1114, 2},
                              KnownSet{"imdb", "text-classification", 10000, 5000, 2},
                              KnownSet{"movielens_small", "rating", 90753, 10083, 1},
                              KnownSet{"optdigits", "image-classification", 3823, 1797, 10}}) {
    SCOPED_TRACE(set.directory);
    Config config = default_config(catalog, "mlp");
    config.task = set.task;
    config.data = std::filesystem::path(data) / set.directory;
    if (!std::filesystem::exists(config.data)) {
      std::cout << config.data.string() << " is not there\n";
      continue;
    }
    const Task task = make_task(config, catalog);
    EXPECT_EQ(task.data.train->size(), set.train);
    EXPECT_EQ(task.data.held_out->size(), set.held_out);
    EXPECT_EQ(task.outputs, set.outputs);
  }
}

}  // namespace
}  // namespace kolo::trainer
