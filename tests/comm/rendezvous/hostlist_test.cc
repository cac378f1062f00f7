#include "comm/rendezvous/hostlist.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/base/error.h"

namespace kolo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Hostlist, ReadsNamesAndRanges) {
  EXPECT_THAT(parse_hostlist("n1"), ElementsAre("n1"));
  EXPECT_THAT(parse_hostlist("b,a"), ElementsAre("b", "a"));
  EXPECT_THAT(parse_hostlist("n[01-03,7]"), ElementsAre("n01", "n02", "n03", "n7"));
  EXPECT_THAT(parse_hostlist("n[9-11]"), ElementsAre("n9", "n10", "n11"));
  EXPECT_THAT(parse_hostlist("n[098-101]"), ElementsAre("n098", "n099", "n100", "n101"));
  EXPECT_THAT(parse_hostlist("login,n[2,1]-ib,gpu-a"),
              ElementsAre("login", "n2-ib", "n1-ib", "gpu-a"));
  EXPECT_THAT(parse_hostlist("r[1-2]n[5-6]"), ElementsAre("r1n5", "r1n6", "r2n5", "r2n6"));
  EXPECT_THAT(parse_hostlist("node-1.example.org"), ElementsAre("node-1.example.org"));
}

TEST(Hostlist, NamesTheListItRejects) {
  for (const char* list : {"", ",", "a,", "n[", "n]", "n[]", "n[1", "n[1-", "n[-1]", "n[1-]",
                           "n[,]", "n[2-1]", "n[a-b]", "n[1,]", "n[1[2]]", "n[1-2-3]",
                           "n[0-999999999]", "n[99999999999]", "a[0-9999]b[0-9999]"}) {
    try {
      parse_hostlist(list);
      ADD_FAILURE() << "accepted " << list;
    } catch (const KoloError& error) {
      EXPECT_EQ(error.error().code, ErrorCode::kConfig);
      EXPECT_THAT(error.what(), HasSubstr("'" + std::string(list) + "'"));
    }
  }
}

}  // namespace
}  // namespace kolo
