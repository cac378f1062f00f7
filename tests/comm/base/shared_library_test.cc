#include "comm/base/shared_library.h"

#include <gmock/gmock.h>

#include "comm/base/error.h"
#include "tests/support/thrown_error.h"

namespace kolo {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

SharedLibrary load(const std::string& file) {
  return SharedLibrary({.file = file, .purpose = "geometry needs it", .remedy = "install it"});
}

void expect_refused(const std::function<void()>& call, const std::string& reason) {
  const Error error = test::thrown_error(call);
  EXPECT_EQ(error.code, ErrorCode::kConfig);
  EXPECT_THAT(error.what, StartsWith("geometry needs it: "));
  EXPECT_THAT(error.what, HasSubstr(reason));
  EXPECT_THAT(error.what, EndsWith("; install it"));
}

TEST(SharedLibrary, FindsFunctions) {
  double (*const root)(double) = load("libm.so.6").find("sqrt");
  EXPECT_EQ(root(9), 3);
}

TEST(SharedLibrary, SaysWhyItCannotBeUsed) {
  expect_refused([] { load("/nowhere/libm.so"); }, "/nowhere/libm.so: cannot open");
  expect_refused([] { load("libm.so.6").find("kolo"); }, "undefined symbol: kolo");
  expect_refused([] { load("libm.so.6").refuse("it is too old"); }, "it is too old");
}

}  // namespace
}  // namespace kolo
