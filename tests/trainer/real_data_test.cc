// Training on data that is not part of this repository: KOLO_TEST_DATA names a directory with
// mnist/ in it. A binary of its own, so that its skip hides no other test.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>

#include "runtime/api/kolo.h"
#include "trainer/compute/threads.h"
#include "trainer/loop/learner_factory.h"
#include "trainer/loop/training.h"
#include "trainer/tasks/make_task.h"

namespace kolo::trainer {
namespace {

TEST(RealDataTest, LenetLearnsMnistWithinOneEpoch) {
  const char* data = std::getenv("KOLO_TEST_DATA");
  if (data == nullptr) GTEST_SKIP() << "KOLO_TEST_DATA does not name a directory with mnist/";
  set_compute_threads(1);
  const Catalog catalog = built_in_catalog();
  Config config = default_config(catalog, "lenet");
  config.data = std::filesystem::path(data) / "mnist";
  config.epochs = 1;
  Runtime runtime = Runtime::from_environment(config.runtime);
  const Task task = make_task(config, catalog);
  const std::unique_ptr<Learner> learner = make_learner(config, runtime, task, catalog);
  const LrScheduleEntry& schedule = catalog.lr_schedules.at(config.lr_schedule);
  EXPECT_GT(train(config, runtime, task, schedule, *learner, nullptr).eval_metric, 0.98);
  runtime.close();
}

}  // namespace
}  // namespace kolo::trainer
