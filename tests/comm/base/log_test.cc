#include "comm/base/log.h"

#include <gmock/gmock.h>
#include <stdlib.h>

namespace kolo {
namespace {

using testing::HasSubstr;
using testing::Not;

// The level is read once per process, so this binary has only this test.
TEST(Log, ALevelThatDoesNotExistIsToldAndSilencesNothing) {
  ::setenv("KOLO_LOG_LEVEL", "verbose", 1);
  testing::internal::CaptureStderr();
  log::error("the peer is gone");
  log::info("a detail");
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr("kolo: KOLO_LOG_LEVEL: 'verbose' is not error, warn, info or debug"));
  EXPECT_THAT(text, HasSubstr("kolo: the peer is gone\n"));
  EXPECT_THAT(text, Not(HasSubstr("detail")));
}

}  // namespace
}  // namespace kolo
