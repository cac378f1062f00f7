// Runs ranks in separate processes: this binary starts itself again with a role as argument.

#include <gtest/gtest.h>
#include <poll.h>

#include <filesystem>
#include <future>

#include "tests/comm/transport/transport_jobs.h"
#include "tests/support/child_process.h"
#include "tests/support/thrown_error.h"

namespace kolo::test {
namespace {

ShmTransport::Config config_of(const std::string& job_id, const std::string& secret, int rank) {
  return {.secret = secret,
          .rank = rank,
          .node_ranks = {0, 1},
          .sockets = sockets_of(job_id, {0, 1}),
          .limits = kSuiteLimits};
}

/// Runs in the child as rank 1: it says hello, then polls until a control frame tells it to leave
/// or it is killed.
int run_child(const std::string& job_id, const std::string& secret) {
  die_with_parent();
  try {
    ShmTransport transport(config_of(job_id, secret, 1), 2);
    transport.send_control(0, {});
    for (ControlFrame frame; !transport.receive_control(frame);) transport.poll();
    transport.shutdown(true);
    return 0;
  } catch (const KoloError& error) {
    return exit_status(error.error().code);
  }
}

std::size_t entries(const char* directory) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory)) ++count;
  return count;
}

void await_hello(ShmTransport& transport) {
  for (ControlFrame frame; !transport.receive_control(frame);) transport.poll();
}

/// Rank 0 in this process, and rank 1, which has said hello, in another.
struct TwoProcesses {
  explicit TwoProcesses(bool opens_memory = true) : rank_0(config(opens_memory), 2) {
    await_hello(rank_0);
  }

  void expect_lost() const {
    EXPECT_EQ(rank_0.failure()->code, ErrorCode::kPeerLost);
    EXPECT_EQ(rank_0.failure()->peer, 1);
  }

  std::string job_id = unique_job_id();
  ChildProcess rank_1{{"--child", job_id, "secret"}};
  ShmTransport rank_0;

 private:
  ShmTransport::Config config(bool opens_memory) const {
    ShmTransport::Config config = config_of(job_id, "secret", 0);
    config.opens_memory = opens_memory;
    return config;
  }
};

void sleep_until_woken(ShmTransport& transport) {
  if (transport.poll() || !transport.arm()) return;
  pollfd waited{.fd = transport.wake_fds().front(), .events = POLLIN, .revents = 0};
  const int woken = ::poll(&waited, 1, 30'000);
  transport.disarm();
  if (woken == 0) throw std::runtime_error("slept through a peer's death");
}

TEST(ShmProcess, AKilledPeerWakesAndIsNamedWhileThisRankSleeps) {
  TwoProcesses job;
  job.rank_1.kill();
  while (!job.rank_0.failure()) sleep_until_woken(job.rank_0);
  job.expect_lost();
}

TEST(ShmProcess, AKilledPeerIsNamedWhileThisRankPollsAndItsMemoryCannotBeRead) {
  TwoProcesses job;
  job.rank_1.kill();  // not reaped: a zombie counts as dead
  while (!job.rank_0.failure()) job.rank_0.poll();
  job.expect_lost();
  std::byte byte{};
  const Error error = thrown_error([&] {
    job.rank_0.read_memory(1, reinterpret_cast<std::uint64_t>(&byte), {&byte, 1});
  });
  EXPECT_EQ(error.code, ErrorCode::kPeerLost);
  EXPECT_EQ(error.peer, 1);
}

TEST(ShmProcess, MemoryIsClosedOnDemand) {
  TwoProcesses job(false);  // the peer has tried to connect
  EXPECT_FALSE(job.rank_0.is_open_to_peers());
  job.rank_0.send_control(1, {});
  EXPECT_EQ(job.rank_1.wait(), 0);
}

TEST(ShmProcess, APeerThatLeavesInOrderIsNoFailure) {
  TwoProcesses job;
  job.rank_0.send_control(1, {});
  EXPECT_EQ(job.rank_1.wait(), 0);
  for (int i = 0; i < 5'000; ++i) job.rank_0.poll();
  EXPECT_FALSE(job.rank_0.failure());
  job.rank_0.shutdown(true);
}

// The frames that are lost may hold the reason, so the peer must report the end.
TEST(ShmProcess, ARankSaysNoGoodbyeToAPeerThatMissesItsFrames) {
  const TransportJob job = shm_job(ProcessGrid::with_node_sizes({2}), kSuiteLimits);
  const std::vector<std::byte> frame(1'000);
  for (int i = 0; i < 100; ++i) job.ranks[0]->send_control(1, frame);  // more than the ring holds
  job.ranks[0]->say_goodbye();
  job.ranks[0]->shutdown(false);
  for (int i = 0; i < 10'000; ++i) job.ranks[1]->poll();
  ASSERT_TRUE(job.ranks[1]->failure());
  EXPECT_EQ(job.ranks[1]->failure()->code, ErrorCode::kPeerLost);
  EXPECT_EQ(job.ranks[1]->failure()->peer, 0);
}

TEST(ShmProcess, AProcessWithoutTheSecretIsRefusedAndTheRightOneStillJoins) {
  const std::string job_id = unique_job_id();
  // A child ends with the thread that started it, so a thread starts this child and ends.
  auto joined = std::async(std::launch::async, [&] {
    return std::make_unique<ShmTransport>(config_of(job_id, "secret", 0), 2);
  });
  ChildProcess stranger({"--child", job_id, "guessed"});
  const int status = stranger.wait();
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), exit_status(ErrorCode::kAuth));
  const ChildProcess right({"--child", job_id, "secret"});
  const std::unique_ptr<ShmTransport> transport = joined.get();
  await_hello(*transport);
  transport->shutdown(true);
}

TEST(ShmProcess, APeerThatDoesNotComeIsNamed) {
  for (const int rank : {0, 1}) {
    auto config = config_of(unique_job_id(), "secret", rank);
    config.connect_within = std::chrono::milliseconds(1);
    const Error error = thrown_error([&] { ShmTransport(config, 2); });
    EXPECT_EQ(error.code, ErrorCode::kTimeout);
    EXPECT_EQ(error.peer, 1 - rank);
    EXPECT_EQ(error.what,
              "rank " + std::to_string(1 - rank) + " of this node did not connect within 1 ms");
  }
}

TEST(ShmProcess, NothingIsLeftBehind) {
  const auto grid = ProcessGrid::with_node_sizes({2});
  shm_job(grid, kSuiteLimits);  // opens the files that stay open from the first use on
  const std::size_t descriptors = entries("/proc/self/fd");
  for (int i = 0; i < 50; ++i) {
    const TransportJob job = shm_job(grid, kSuiteLimits);
    job.ranks[0]->commit(0, kSuiteLimits.arena_bytes);
    if (i % 2 == 0) job.ranks[0]->shutdown(true);
  }
  EXPECT_EQ(entries("/proc/self/fd"), descriptors);

  TwoProcesses job;
  job.rank_1.kill();
  job.rank_1.wait();
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    EXPECT_EQ(entry.path().filename().string().find("kolo"), std::string::npos);
  }
}

TEST(ShmProcess, RanksThatDisagreeAboutLimitsSayWhatDiffers) {
  const std::string job_id = unique_job_id();
  const auto codes = std::make_unique<std::atomic<ErrorCode>[]>(2);
  run_ranks(2, [&](const RankRun& run) {
    auto config = config_of(job_id, "secret", run.rank());
    config.limits.counters += static_cast<std::uint32_t>(run.rank());
    const Error error = thrown_error([&] { ShmTransport(config, 2); });
    codes[static_cast<std::size_t>(run.rank())] = error.code;
    EXPECT_NE(error.what.find("counters"), std::string::npos) << error.what;
  });
  EXPECT_EQ(codes[0].load(), ErrorCode::kConfig);
  EXPECT_EQ(codes[1].load(), ErrorCode::kConfig);
}

}  // namespace
}  // namespace kolo::test

int main(int argc, char** argv) {
  if (argc == 4 && std::string(argv[1]) == "--child")
    return kolo::test::run_child(argv[2], argv[3]);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
