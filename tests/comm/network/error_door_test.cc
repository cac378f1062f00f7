#include "comm/network/error_door.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <optional>
#include <string>

#include "comm/rendezvous/tcp_socket.h"

namespace kolo {
namespace {

using std::chrono::seconds;

const Error kStuck{.code = ErrorCode::kStall, .rank = 3, .peer = 3, .verb = "run", .what = "stuck"};

TimePoint soon() { return SteadyClock{}.now() + seconds(10); }

bool somebody_knocks(const ErrorDoor& door, int within_ms) {
  pollfd polled{.fd = door.fd(), .events = POLLIN, .revents = 0};
  return ::poll(&polled, 1, within_ms) == 1;
}

TEST(ErrorDoor, GetsTheErrorThatAVisitorBrings) {
  ErrorDoor door("127.0.0.1");
  EXPECT_FALSE(door.answer());
  ASSERT_TRUE(ErrorDoor::knock(door.address(), kStuck, soon()));
  ASSERT_TRUE(somebody_knocks(door, 10'000));
  const std::optional<Error> error = door.answer();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->to_string(), kStuck.to_string());
  EXPECT_EQ(error->code, kStuck.code);
  EXPECT_FALSE(somebody_knocks(door, 0));
  EXPECT_FALSE(door.answer());
}

TEST(ErrorDoor, TurnsAwayWhoHasNoKeyAndWhoSaysNothing) {
  ErrorDoor door("127.0.0.1");
  std::string address = door.address();
  address.back() = static_cast<char>(address.back() ^ 1);
  ASSERT_TRUE(ErrorDoor::knock(address, kStuck, soon()));
  std::string why;
  const auto silent = connect_to("127.0.0.1", port_of(door.fd()), soon(), why);
  ASSERT_TRUE(silent) << why;
  ASSERT_TRUE(ErrorDoor::knock(door.address(), kStuck, soon()));
  std::optional<Error> error;
  for (int turn = 0; turn < 3 && !error && somebody_knocks(door, 10'000); ++turn) {
    error = door.answer();
  }
  ASSERT_TRUE(error);
  EXPECT_EQ(error->to_string(), kStuck.to_string());
}

TEST(ErrorDoor, CutsALongText) {
  ErrorDoor door("127.0.0.1");
  Error error = kStuck;
  error.what = std::string(100'000, 'x');
  ASSERT_TRUE(ErrorDoor::knock(door.address(), error, soon()));
  ASSERT_TRUE(somebody_knocks(door, 10'000));
  const std::optional<Error> brought = door.answer();
  ASSERT_TRUE(brought);
  EXPECT_EQ(brought->verb, "run");
  EXPECT_GT(brought->what.size(), 900U);
  EXPECT_LT(brought->what.size(), ErrorDoor::kMostBytes);
}

TEST(ErrorDoor, IsClosedWhenItsRankHasGone) {
  std::string address;
  {
    const ErrorDoor door("127.0.0.1");
    address = door.address();
  }
  EXPECT_FALSE(ErrorDoor::knock(address, kStuck, soon()));
  EXPECT_FALSE(ErrorDoor::knock("nonsense", kStuck, soon()));
}

}  // namespace
}  // namespace kolo
