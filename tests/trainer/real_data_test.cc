// Training on data that is not part of this repository: KOLO_TEST_DATA names a directory with
// mnist/ in it. A binary of its own, so that its skip hides no other test.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "runtime/kolo.h"
#include "trainer/compute/device.h"
#include "trainer/compute/threads.h"
#include "trainer/loop/training.h"

namespace kolo::trainer {
namespace {

TEST(RealDataTest, LenetLearnsMnistWithinOneEpoch) {
  const char* data = std::getenv("KOLO_TEST_DATA");
  if (data == nullptr) GTEST_SKIP() << "KOLO_TEST_DATA does not name a directory with mnist/";
  set_compute_threads(1);
  Config config = default_config("lenet");
  config.data = std::filesystem::path(data) / "mnist";
  config.epochs = 1;
  Runtime runtime = Runtime::from_environment(config.runtime);
  Device device;
  Task task = make_task(config, device);
  EXPECT_GT(train(config, runtime, task, nullptr).eval_accuracy, 0.98);
  runtime.close();
}

}  // namespace
}  // namespace kolo::trainer
