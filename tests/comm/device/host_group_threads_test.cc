#include <gtest/gtest.h>

#include "tests/comm/device/host_group_job.h"
#include "tests/comm/device/local_group_conformance.h"
#include "tests/comm/device/local_group_parts_conformance.h"

namespace kolo::test {
namespace {

std::vector<GroupCase> threaded_cases() {
  std::vector<GroupCase> cases;
  for (const int size : {1, 2, 3, 4}) {
    cases.push_back({std::to_string(size) + "_ranks",
                     [=] { return std::make_unique<ThreadedGroupJob>(size); }});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Threads, LocalGroupConformance, testing::ValuesIn(threaded_cases()),
                         group_case_name);

}  // namespace
}  // namespace kolo::test
