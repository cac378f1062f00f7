#include "comm/transport/local_socket.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>

#include "comm/base/error.h"
#include "comm/base/open_files.h"
#include "tests/support/thrown_error.h"

namespace kolo {
namespace {

using testing::HasSubstr;

/// During its lifetime, this process may open only `more` further descriptors.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(int more) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const FileDescriptor next(::dup(STDERR_FILENO));
    rlimit limit = before_;
    limit.rlim_cur = static_cast<rlim_t>(next.get() + more);
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  ~DescriptorLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;

 private:
  rlimit before_{};
};

/// Receives a packet with two descriptors while this process may open `more` files.
void receive_two(int more) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends.data()), 0);
  const FileDescriptor from(ends[0]);
  const FileDescriptor to(ends[1]);
  const std::array sent{STDIN_FILENO, STDERR_FILENO};
  ASSERT_TRUE(send_packet(from.get(), "rank 1", sent));
  const DescriptorLimit limit(more);
  const TimePoint deadline = TimePoint(std::chrono::steady_clock::now()) + std::chrono::seconds(60);
  const auto packet = receive_packet(to.get(), 100, deadline);
  ASSERT_TRUE(packet);
  EXPECT_EQ(packet->bytes, "rank 1");
  EXPECT_EQ(packet->descriptors.size(), 2U);
}

TEST(LocalSocket, DescriptorsForWhichThereIsNoRoomAreAnErrorThatSaysWhatToRaise) {
  receive_two(2);
  for (const int more : {0, 1}) {
    const Error error = test::thrown_error([&] { receive_two(more); });
    EXPECT_EQ(error.code, ErrorCode::kResources) << more;
    EXPECT_THAT(error.what, HasSubstr("(ulimit -n)"));
  }
}

TEST(OpenFiles, TheLimitIsRaisedToWhatTheSystemAllows) {
  const DescriptorLimit limit(1);
  const Error error = test::thrown_error([] { require_open_files(2, "this test"); });
  EXPECT_EQ(error.code, ErrorCode::kResources);
  EXPECT_THAT(error.what, HasSubstr("needs 2 descriptors and this process may open 1 more"));
  raise_open_file_limit();
  rlimit raised{};
  ::getrlimit(RLIMIT_NOFILE, &raised);
  EXPECT_EQ(raised.rlim_cur, raised.rlim_max);
  require_open_files(2, "this test");
}

}  // namespace
}  // namespace kolo
