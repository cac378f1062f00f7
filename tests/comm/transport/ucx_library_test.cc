#include "comm/transport/ucx_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "comm/base/error.h"

namespace kolo {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Error error_of(const std::function<void()>& load) {
  try {
    load();
  } catch (const KoloError& error) {
    return error.error();
  }
  ADD_FAILURE() << "it is taken for UCX";
  return {};
}

TEST(UcxLibrary, SaysWhatToInstallOrSetIfThereIsNone) {
  const Error error = error_of([] { UcxLibrary("/nowhere/libucp.so.0"); });
  EXPECT_EQ(error.code, ErrorCode::kConfig);
  EXPECT_THAT(error.what, AllOf(HasSubstr("communication between nodes needs UCX: /nowhere"),
                                HasSubstr("install UCX 1."), HasSubstr("KOLO_UCX_LIBRARY")));
}

TEST(UcxLibrary, NamesTheFunctionThatAnotherLibraryLacks) {
  const Error error = error_of([] { UcxLibrary("libm.so.6"); });
  EXPECT_EQ(error.code, ErrorCode::kConfig);
  EXPECT_THAT(error.what, AllOf(HasSubstr("undefined symbol: ucp_"), HasSubstr("install UCX")));
}

TEST(UcxLibrary, IsLoadedOnce) {
  const UcxLibrary& ucx = load_ucx({});
  EXPECT_EQ(&load_ucx({}), &ucx);
  EXPECT_EQ(&load_ucx("libucp.so.0"), &ucx);
  const Error error = error_of([] { load_ucx("/opt/libucp.so.0"); });
  EXPECT_EQ(error.code, ErrorCode::kConfig);
  EXPECT_THAT(error.what, HasSubstr("ucx_library='/opt/libucp.so.0'"));
}

}  // namespace
}  // namespace kolo
