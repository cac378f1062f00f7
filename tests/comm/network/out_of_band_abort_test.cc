#include "comm/network/out_of_band_abort.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>

#include "comm/rendezvous/tcp_socket.h"

namespace kolo {
namespace {

using std::chrono::seconds;

const Error kStuck{.code = ErrorCode::kStall, .rank = 3, .peer = 3, .verb = "run", .what = "stuck"};

TimePoint soon() { return SteadyClock{}.now() + seconds(10); }

bool somebody_knocks(const OutOfBandAbort& listener, int within_ms) {
  pollfd polled{.fd = listener.fd(), .events = POLLIN, .revents = 0};
  return ::poll(&polled, 1, within_ms) == 1;
}

TEST(OutOfBandAbort, GetsTheErrorThatAVisitorBrings) {
  OutOfBandAbort listener("127.0.0.1");
  EXPECT_FALSE(listener.answer());
  ASSERT_TRUE(OutOfBandAbort::knock(listener.address(), kStuck, soon()));
  ASSERT_TRUE(somebody_knocks(listener, 10'000));
  const std::optional<Error> error = listener.answer();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->to_string(), kStuck.to_string());
  EXPECT_EQ(error->code, kStuck.code);
  EXPECT_FALSE(somebody_knocks(listener, 0));
  EXPECT_FALSE(listener.answer());
}

TEST(OutOfBandAbort, TurnsAwayWhoHasNoKeyAndWhoSaysNothing) {
  OutOfBandAbort listener("127.0.0.1");
  std::string address = listener.address();
  address.back() = static_cast<char>(address.back() ^ 1);
  ASSERT_TRUE(OutOfBandAbort::knock(address, kStuck, soon()));
  std::string why;
  const auto silent = connect_to("127.0.0.1", port_of(listener.fd()), soon(), why);
  ASSERT_TRUE(silent) << why;
  ASSERT_TRUE(OutOfBandAbort::knock(listener.address(), kStuck, soon()));
  std::optional<Error> error;
  for (int turn = 0; turn < 3 && !error && somebody_knocks(listener, 10'000); ++turn) {
    error = listener.answer();
  }
  ASSERT_TRUE(error);
  EXPECT_EQ(error->to_string(), kStuck.to_string());
}

TEST(OutOfBandAbort, CutsALongText) {
  OutOfBandAbort listener("127.0.0.1");
  Error error = kStuck;
  error.what = std::string(100'000, 'x');
  ASSERT_TRUE(OutOfBandAbort::knock(listener.address(), error, soon()));
  ASSERT_TRUE(somebody_knocks(listener, 10'000));
  const std::optional<Error> brought = listener.answer();
  ASSERT_TRUE(brought);
  EXPECT_EQ(brought->verb, "run");
  EXPECT_GT(brought->what.size(), 900U);
  EXPECT_LT(brought->what.size(), OutOfBandAbort::kMostBytes);
}

TEST(OutOfBandAbort, IsClosedWhenItsRankHasGone) {
  std::string address;
  {
    const OutOfBandAbort listener("127.0.0.1");
    address = listener.address();
  }
  EXPECT_FALSE(OutOfBandAbort::knock(address, kStuck, soon()));
  EXPECT_FALSE(OutOfBandAbort::knock("nonsense", kStuck, soon()));
}

}  // namespace
}  // namespace kolo
