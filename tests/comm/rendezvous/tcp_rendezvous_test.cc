#include "comm/rendezvous/tcp_rendezvous.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <random>
#include <stdexcept>

#include "comm/base/error.h"
#include "comm/rendezvous/tcp_connection.h"
#include "comm/rendezvous/tcp_socket.h"
#include "tests/support/thrown_error.h"

namespace kolo {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::chrono::seconds kLong{60};
constexpr std::chrono::milliseconds kShort{100};

/// A port on which rank 0 listens, and ranks and foreign clients that connect to it.
class TcpRendezvousTest : public ::testing::Test {
 protected:
  TcpOptions options(int rank, int size) const {
    return {.rank = rank,
            .size = size,
            .host = "127.0.0.1",
            .port = port_,
            .job_id = "job",
            .timeout = kLong};
  }

  std::unique_ptr<Rendezvous> join(const TcpOptions& options) {
    return options.rank == 0 ? make_tcp_rendezvous(options, std::move(listener_))
                             : make_tcp_rendezvous(options);
  }

  /// Runs one rank in a thread. It joins and contributes its rank as a letter. Returns its error.
  std::future<std::optional<Error>> run(const TcpOptions& options) {
    return std::async(std::launch::async, [this, options]() -> std::optional<Error> {
      try {
        const auto rendezvous = join(options);
        std::string all;
        for (const std::string& one : rendezvous->all_gather(letter(options.rank))) all += one;
        std::string expected;
        for (int rank = 0; rank < options.size; ++rank) expected += letter(rank);
        EXPECT_EQ(all, expected);
        return std::nullopt;
      } catch (const KoloError& error) {
        return error.error();
      }
    });
  }

  /// Connects as a foreign client and sends `bytes`.
  TcpConnection stranger(std::string_view bytes) const {
    std::string why;
    TcpConnection connection(connect_to("127.0.0.1", port_, SteadyClock{}.now() + kLong, why),
                             std::size_t{1} << 20);
    EXPECT_TRUE(connection.is_open()) << why;
    connection.send(bytes);
    return connection;
  }

  Hello hello(std::uint32_t rank, std::uint32_t size) const {
    return {.rank = rank, .size = size, .job_hash = hash_job_id("job")};
  }

  /// Blocks until rank 0 has closed the connection or answered.
  static std::optional<TcpConnection::Frame> answer(TcpConnection& connection) {
    for (;;) {
      if (auto frame = connection.take_frame()) return frame;
      if (!connection.is_open()) return std::nullopt;
      TcpConnection* const only = &connection;
      progress_until(SteadyClock{}.now() + kLong, -1, std::span(&only, 1));
    }
  }

  static std::string letter(int rank) { return std::string(1, static_cast<char>('a' + rank)); }

  FileDescriptor listener_ = listen_on("127.0.0.1", 0);
  std::uint16_t port_ = port_of(listener_.get());
};

TEST_F(TcpRendezvousTest, StrangersDisturbNobody) {
  constexpr unsigned kSeed = 11;
  std::mt19937 random(kSeed);
  std::vector<TcpConnection> strangers;
  strangers.push_back(stranger(""));                                       // never sends
  strangers.push_back(stranger(encode_hello(hello(1, 3)).substr(0, 20)));  // half a hello
  strangers.push_back(stranger("GET / HTTP/1.1\r\n\r\n"));
  stranger("");                         // connects and closes
  stranger(encode_hello(hello(2, 3)));  // sends its hello and closes
  for (int i = 0; i < 20; ++i) {
    std::string noise(random() % 300, '\0');
    for (char& byte : noise) byte = static_cast<char>(random() & 0xff);
    strangers.push_back(stranger(noise));
  }
  auto first = run(options(0, 3));
  auto second = run(options(1, 3));
  auto third = run(options(2, 3));
  for (auto* rank : {&first, &second, &third}) {
    const auto error = rank->get();
    EXPECT_FALSE(error) << error->to_string() << " (seed " << kSeed << ")";
  }
}

TEST_F(TcpRendezvousTest, ImpossibleHellosAreAnsweredAndDisturbNobody) {
  auto first = run(options(0, 2));
  const auto expect_rejected = [&](const Hello& hello, const std::string& why) {
    TcpConnection connection = stranger(encode_hello(hello));
    const auto frame = answer(connection);
    ASSERT_TRUE(frame) << why;
    ASSERT_EQ(frame->kind, TcpFrameKind::kError);
    const auto error = decode_error(frame->payload);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code, ErrorCode::kConfig);
    EXPECT_THAT(error->what, HasSubstr(why));
  };
  expect_rejected(hello(0, 2), "rank 0 has joined already");
  expect_rejected(hello(2, 2), "rank 2 of 2 cannot be");
  expect_rejected(hello(0xffffffff, 0xffffffff), "cannot be");
  expect_rejected({.rank = 1, .size = 2, .job_hash = hash_job_id("other")}, "another job");
  auto second = run(options(1, 2));
  EXPECT_FALSE(first.get());
  EXPECT_FALSE(second.get());
}

// Rank 0 cannot know which process belongs to this job. It refuses both, and the job ends.
TEST_F(TcpRendezvousTest, TwoProcessesOfOneRankEndTheLaunch) {
  auto first = run(options(0, 3));
  TcpConnection one = stranger(encode_hello(hello(1, 3)));
  TcpConnection same = stranger(encode_hello(hello(1, 3)));
  const std::string why = "is another job at port " + std::to_string(port_);
  for (TcpConnection* each : {&one, &same}) {
    const auto told = decode_error(answer(*each)->payload);
    EXPECT_EQ(told->code, ErrorCode::kConfig);
    EXPECT_THAT(told->what, AllOf(HasSubstr("two processes are rank 1"), HasSubstr(why)));
  }
  const auto noticed = first.get();
  ASSERT_TRUE(noticed);
  EXPECT_EQ(noticed->code, ErrorCode::kConfig);
  EXPECT_THAT(noticed->what, HasSubstr("two processes are rank 1"));
}

TEST_F(TcpRendezvousTest, TheSecondOfOneRankIsOnlyRefusedAfterAllHaveJoined) {
  auto first = run(options(0, 2));
  TcpConnection one = stranger(encode_hello(hello(1, 2)));
  EXPECT_EQ(answer(one)->kind, TcpFrameKind::kWelcome);
  TcpConnection same = stranger(encode_hello(hello(1, 2)));
  EXPECT_THAT(decode_error(answer(same)->payload)->what, HasSubstr("two processes are rank 1"));
  one.send(encode_frame(TcpFrameKind::kData, "b"));
  const auto error = first.get();
  EXPECT_FALSE(error) << error->to_string();
}

TEST_F(TcpRendezvousTest, ARankZeroThatFailsOtherwiseTellsAll) {
  auto second = run(options(1, 2));
  try {
    const auto zero = join(options(0, 2));
    throw std::runtime_error("bad option");
  } catch (const std::runtime_error&) {
  }
  const auto error = second.get();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, ErrorCode::kPeerLost);
  EXPECT_EQ(error->peer, 0);
  EXPECT_THAT(error->what, HasSubstr("failed during start-up"));
}

TEST_F(TcpRendezvousTest, HellosThatContradictTheJobDoNotEndIt) {
  std::vector<TcpConnection> strangers;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    strangers.push_back(stranger(encode_hello(hello(rank, 4))));
    Hello newer = hello(rank, 3);
    newer.version = 9;
    strangers.push_back(stranger(encode_hello(newer)));
  }
  strangers.push_back(stranger(encode_hello(hello(3, 4))));
  std::vector<std::future<std::optional<Error>>> ranks;
  for (int rank = 0; rank < 3; ++rank) ranks.push_back(run(options(rank, 3)));
  for (auto& rank : ranks) {
    const auto error = rank.get();
    EXPECT_FALSE(error) << error->to_string();
  }
}

TEST_F(TcpRendezvousTest, ARankThatContradictsTheJobIsToldAtOnceAndNamedWhereItIsMissing) {
  TcpConnection present = stranger(encode_hello(hello(1, 4)));
  TcpConnection other_size = stranger(encode_hello(hello(2, 3)));
  Hello newer = hello(3, 4);
  newer.version = 9;
  TcpConnection other_version = stranger(encode_hello(newer));
  TcpOptions mine = options(0, 4);
  mine.timeout = kShort;
  auto first = run(mine);
  const std::string size_text = "rank 2 was started with world size 3, rank 0 with 4";
  const std::string version_text = "rank 3 speaks version 9";
  for (const auto& [connection, text] :
       {std::pair{&other_size, size_text}, std::pair{&other_version, version_text}}) {
    const auto told = decode_error(answer(*connection)->payload);
    connection->close("");
    ASSERT_TRUE(told);
    EXPECT_EQ(told->code, ErrorCode::kConfig);
    EXPECT_THAT(told->what, HasSubstr(text));
  }
  const auto told = decode_error(answer(present)->payload);
  present.close("");
  const auto noticed = first.get();
  for (const auto* error : {&told, &noticed}) {
    ASSERT_TRUE(*error);
    EXPECT_EQ((*error)->code, ErrorCode::kConfig);
    EXPECT_THAT((*error)->what, AllOf(HasSubstr("rank 2, 3 of 4 did not join"),
                                      HasSubstr(size_text), HasSubstr(version_text)));
  }
}

TEST_F(TcpRendezvousTest, OfTooManySilentStrangersTheOldestAreDropped) {
  TcpOptions mine = options(0, 2);
  mine.hello_timeout = kLong;
  auto first = run(mine);
  std::vector<TcpConnection> strangers;
  for (int i = 0; i < 200; ++i) strangers.push_back(stranger(""));
  EXPECT_FALSE(answer(strangers[0]));  // rank 0 has closed it
  auto second = run(options(1, 2));
  EXPECT_FALSE(first.get());
  EXPECT_FALSE(second.get());
}

// The job needs the file descriptors, so only a few silent connections remain.
TEST_F(TcpRendezvousTest, WhoeverIsSilentWhenAllHaveJoinedIsDroppedButAFew) {
  TcpOptions mine = options(0, 2);
  mine.hello_timeout = kLong;
  std::vector<TcpConnection> strangers;
  for (int i = 0; i < 20; ++i) strangers.push_back(stranger(""));
  TcpConnection second = stranger(encode_hello(hello(1, 2)));
  auto first = run(mine);
  EXPECT_EQ(answer(second)->kind, TcpFrameKind::kWelcome);
  for (int i = 0; i < 16; ++i) EXPECT_FALSE(answer(strangers[static_cast<std::size_t>(i)])) << i;
  second.send(encode_frame(TcpFrameKind::kData, "b"));
  EXPECT_FALSE(first.get());
}

/// During its lifetime, this process may open only `more` further descriptors.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(int more) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const FileDescriptor next(::dup(STDERR_FILENO));
    const rlimit limit{.rlim_cur = static_cast<rlim_t>(next.get() + more),
                       .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  ~DescriptorLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;

 private:
  rlimit before_{};
};

TEST_F(TcpRendezvousTest, StrangersDoNotTakeTheLastDescriptors) {
  std::vector<TcpConnection> strangers;
  for (int i = 0; i < 20; ++i) strangers.push_back(stranger(""));
  TcpConnection second = stranger(encode_hello(hello(1, 2)));
  TcpOptions mine = options(0, 2);
  mine.hello_timeout = kLong;
  const DescriptorLimit limit(5);
  auto first = run(mine);
  const auto welcome = answer(second);
  ASSERT_TRUE(welcome);
  EXPECT_EQ(welcome->kind, TcpFrameKind::kWelcome);
  second.send(encode_frame(TcpFrameKind::kData, "b"));
  const auto error = first.get();
  EXPECT_FALSE(error) << error->to_string();
}

TEST_F(TcpRendezvousTest, MissingRanksAreNamedOnAllOthers) {
  TcpOptions mine = options(0, 4);
  mine.timeout = kShort;
  TcpConnection present = stranger(encode_hello(hello(2, 4)));
  auto first = run(mine);
  const auto told = decode_error(answer(present)->payload);
  present.close("");
  const auto noticed = first.get();
  for (const auto* error : {&told, &noticed}) {
    ASSERT_TRUE(*error);
    EXPECT_EQ((*error)->code, ErrorCode::kTimeout);
    EXPECT_THAT((*error)->what, HasSubstr("rank 1, 3 of 4 did not join"));
  }
}

TEST_F(TcpRendezvousTest, NobodyListensIsATimeoutWithItsCause) {
  listener_.reset();
  TcpOptions alone = options(1, 2);
  alone.timeout = kShort;
  const auto error = run(alone).get();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, ErrorCode::kTimeout);
  EXPECT_EQ(error->peer, 0);
  EXPECT_THAT(error->what, HasSubstr("Connection refused"));
}

TEST_F(TcpRendezvousTest, RankThatGivesNothingIsNamedOnAll) {
  TcpOptions mine = options(0, 3);
  mine.timeout = std::chrono::seconds{2};
  TcpConnection silent = stranger(encode_hello(hello(1, 3)));
  auto third = run(options(2, 3));
  auto first = run(mine);
  for (auto* rank : {&first, &third}) {
    const auto error = rank->get();
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code, ErrorCode::kTimeout);
    EXPECT_THAT(error->what, HasSubstr("nothing from rank 1"));
  }
}

TEST_F(TcpRendezvousTest, RankThatLeavesIsNamedOnAll) {
  auto first = run(options(0, 3));
  auto third = run(options(2, 3));
  TcpConnection leaving = stranger(encode_hello(hello(1, 3)));
  EXPECT_EQ(answer(leaving)->kind, TcpFrameKind::kWelcome);
  leaving.close("");
  for (auto* rank : {&first, &third}) {
    const auto error = rank->get();
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code, ErrorCode::kPeerLost);
    EXPECT_EQ(error->peer, 1);
  }
}

TEST_F(TcpRendezvousTest, HugeLengthEndsTheRankThatAnnouncedIt) {
  auto first = run(options(0, 2));
  TcpConnection huge = stranger(encode_hello(hello(1, 2)));
  EXPECT_EQ(answer(huge)->kind, TcpFrameKind::kWelcome);
  std::string header = encode_frame(TcpFrameKind::kData, "");
  header[kFrameHeaderBytes - 2] = '\x7f';  // the length is now close to 2^55
  huge.send(header);
  const auto error = first.get();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, ErrorCode::kPeerLost);
  EXPECT_EQ(error->peer, 1);
  EXPECT_THAT(error->what, HasSubstr("are allowed"));
}

TEST_F(TcpRendezvousTest, TooLongAContributionIsTheCallersError) {
  TcpOptions mine = options(0, 1);
  mine.max_contribution_bytes = 10;
  const auto alone = join(mine);
  EXPECT_THROW(alone->all_gather(std::string(11, 'x')), UsageError);
  EXPECT_EQ(alone->all_gather("fits").size(), 1U);
}

TEST_F(TcpRendezvousTest, RejectsImpossiblePlaces) {
  for (const auto& [rank, size] : {std::pair{-1, 2}, {2, 2}, {0, 0}, {0, kMaxTcpRanks + 1}}) {
    EXPECT_THROW(make_tcp_rendezvous(options(rank, size)), UsageError);
  }
}

TEST_F(TcpRendezvousTest, TakenPortIsNamed) {
  const Error error = test::thrown_error([&] { listen_on("127.0.0.1", port_); });
  EXPECT_EQ(error.code, ErrorCode::kIo);
  EXPECT_THAT(error.what, HasSubstr(std::to_string(port_)));
}

TEST_F(TcpRendezvousTest, DescriptorsDoNotReachOtherPrograms) {
  const TcpConnection connection = stranger("");
  const FileDescriptor accepted = accept_from(listener_.get());
  for (const int fd : {listener_.get(), connection.fd(), accepted.get()}) {
    EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_NE(::fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
  }
}

TEST(TcpSocket, ListensForBothFamilies) {
  const FileDescriptor listener = listen_on("", 0);
  const std::uint16_t port = port_of(listener.get());
  std::string why;
  EXPECT_TRUE(connect_to("127.0.0.1", port, SteadyClock{}.now() + kLong, why)) << why;
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length);
  if (address.ss_family != AF_INET6) GTEST_SKIP() << "this machine has no IPv6";
  EXPECT_TRUE(connect_to("::1", port, SteadyClock{}.now() + kLong, why)) << why;
}

TEST(TcpSocket, UnknownHostHasACause) {
  std::string why;
  EXPECT_FALSE(connect_to("no-such-host.invalid", 1, SteadyClock{}.now() + kShort, why));
  EXPECT_FALSE(why.empty());
}

}  // namespace
}  // namespace kolo
