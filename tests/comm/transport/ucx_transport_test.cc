#include "comm/transport/ucx_transport.h"

#include <algorithm>
#include <cstdlib>
#include <functional>

#include "comm/transport/routed_transport.h"
#include "tests/comm/transport/transport_jobs.h"
#include "tests/conformance/transport_conformance_tests.h"
#include "tests/support/child_process.h"

namespace kolo::test {
namespace {

/// Makes a job with shared memory inside nodes, and UCX over this machine's network between them.
TransportJob ucx_job(const ProcessGrid& grid, const TransportLimits& limits) {
  const std::string job_id = unique_job_id();
  std::vector<std::unique_ptr<UcxTransport>> networks;
  std::vector<std::string> addresses;
  for (int rank = 0; rank < grid.world_size(); ++rank) {
    networks.push_back(UcxTransport::create({.rank = rank, .world_size = grid.world_size()}));
    addresses.push_back(networks.back()->address());
  }
  return make_together(grid, [&](int rank) {
    auto& network = networks[static_cast<std::size_t>(rank)];
    network->connect(addresses);
    return std::make_unique<RoutedTransport>(shm_rank(grid, limits, job_id, rank),
                                             std::move(network));
  });
}

INSTANTIATE_TEST_SUITE_P(Ucx, TransportConformance,
                         testing::Values(TransportCase{"ucx", {1, 1}, true, ucx_job},
                                         TransportCase{"ucx_and_shm", {2, 1}, false, ucx_job}),
                         case_name);

/// Polls both transports until `done` returns true.
void poll_until(Transport& one, Transport& other, const std::function<bool()>& done) {
  while (!done()) {
    one.poll();
    other.poll();
  }
}

TEST(UcxMemoryUse, MessagesMayLieInCommittedMemoryOrNot) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({1, 1});
  TransportLimits limits = kSuiteLimits;
  limits.arena_bytes = std::size_t{1} << 20;
  const TransportJob job = ucx_job(grid, limits);
  Transport &from = *job.ranks[0], &to = *job.ranks[1];
  for (Transport* rank : {&from, &to}) {
    rank->commit(0, 300'000);
    rank->commit(100, 1'000);        // inside the first region
    rank->commit(200'000, 400'000);  // reaches beyond the first region
  }
  const auto text = pattern(0, 1, 400'000);
  std::copy(text.begin(), text.end(), from.memory(0).begin());
  // Offsets are in one region, across two regions, and in memory that was never committed.
  const std::size_t offsets[] = {0, 150'000, 190'000, 400'000};
  constexpr std::size_t kBytes = 150'000;
  std::vector<Completion> sends(4), receives(4);
  for (std::size_t i = 0; i < 4; ++i) {
    to.irecv(0, numbered(0, i), to.memory(1).subspan(offsets[i], kBytes), receives[i]);
    from.isend(1, numbered(0, i), std::span(text).subspan(offsets[i] / 2, kBytes), sends[i]);
    poll_until(from, to, [&] { return is_done({receives[i]}) && is_done({sends[i]}); });
    EXPECT_TRUE(std::equal(text.begin() + static_cast<std::ptrdiff_t>(offsets[i] / 2),
                           text.begin() + static_cast<std::ptrdiff_t>(offsets[i] / 2 + kBytes),
                           to.memory(1).begin() + static_cast<std::ptrdiff_t>(offsets[i])))
        << i;
  }
  Completion send, receive;
  std::vector<std::byte> got(kBytes);
  to.irecv(0, numbered(0, 4), got, receive);
  from.isend(1, numbered(0, 4), from.memory(0).subspan(0, kBytes), send);
  poll_until(from, to, [&] { return is_done({receive}) && is_done({send}); });
  EXPECT_TRUE(std::equal(got.begin(), got.end(), text.begin()));
}

TEST(UcxChannels, AControlFrameDoesNotWaitForDataOnItsWay) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({1, 1});
  const TransportJob job = ucx_job(grid, kSuiteLimits);
  Transport &from = *job.ranks[0], &to = *job.ranks[1];
  // Opens both connections.
  const auto small = pattern(0, 1, 8);
  std::vector<std::byte> got(small.size());
  Completion send, receive;
  ControlFrame frame;
  to.irecv(0, numbered(0, 0), got, receive);
  from.isend(1, numbered(0, 0), small, send);
  from.send_control(1, small);
  poll_until(from, to, [&] { return is_done({receive}) && to.receive_control(frame); });

  // This is more than the system sends at once. The sender then stops polling, so the rest stays
  // queued; a frame behind it would be queued too.
  const std::vector<std::byte> large(std::size_t{64} << 20);
  std::vector<std::byte> place(large.size());
  to.irecv(0, numbered(0, 1), place, receive);
  from.isend(1, numbered(0, 1), large, send);
  from.send_control(1, small);
  bool arrived = false;
  for (int turn = 0; turn < 100'000 && !arrived; ++turn) {
    to.poll();
    arrived = to.receive_control(frame);
  }
  EXPECT_TRUE(arrived);
  EXPECT_FALSE(is_done({receive}));
  poll_until(from, to, [&] { return is_done({receive}) && is_done({send}); });
}

// Any client that reaches the port can send frames. Frames that no peer can have sent are dropped.
TEST(UcxStrangers, FramesOfNoPeerAreDroppedAndCounted) {
  constexpr int kManyRanks = 10'000;
  const auto me = UcxTransport::create({.rank = 0, .world_size = 2, .longest_control_frame = 8});
  const auto peer = UcxTransport::create({.rank = 1, .world_size = 2});
  const auto no_rank = UcxTransport::create({.rank = kManyRanks - 1, .world_size = kManyRanks});
  const auto namesake = UcxTransport::create({.rank = 0, .world_size = 2});
  me->connect({me->address(), peer->address()});
  peer->connect({me->address(), peer->address()});
  no_rank->connect(std::vector(kManyRanks, me->address()));
  namesake->connect({me->address(), me->address()});
  const auto text = pattern(1, 0, 8);
  no_rank->send_control(0, text);
  namesake->send_control(1, text);
  peer->send_control(0, pattern(1, 0, 9));
  peer->send_control(0, text);
  ControlFrame frame;
  bool has_come = false;
  while (!has_come || me->foreign_frames().count() < 3) {
    for (const auto* each : {&me, &peer, &no_rank, &namesake}) (*each)->poll();
    has_come = me->receive_control(frame) || has_come;
  }
  EXPECT_EQ(frame.peer, 1);
  EXPECT_EQ(frame.bytes, text);
  EXPECT_FALSE(me->receive_control(frame));
  EXPECT_EQ(me->foreign_frames().count(), 3U);
  EXPECT_FALSE(me->failure());
}

constexpr int kLastWords = 20;

/// Connects two processes over UCX. They exchange addresses through shared memory.
std::unique_ptr<UcxTransport> meet_over_ucx(ShmTransport& bootstrap,
                                            std::vector<int> control_peers = {}) {
  auto network = UcxTransport::create(
      {.rank = bootstrap.rank(), .world_size = 2, .control_peers = std::move(control_peers)});
  const int peer = 1 - bootstrap.rank();
  std::vector<std::string> addresses(2, network->address());
  bootstrap.send_control(peer, std::as_bytes(std::span(addresses[0])));
  ControlFrame frame;
  while (!bootstrap.receive_control(frame)) bootstrap.poll();
  addresses[static_cast<std::size_t>(peer)].assign(
      reinterpret_cast<const char*>(frame.bytes.data()), frame.bytes.size());
  network->connect(std::move(addresses));
  return network;
}

int run_child(const std::string& job_id, bool leaves_in_order) {
  die_with_parent();
  const auto bootstrap = shm_rank(ProcessGrid::with_node_sizes({2}), kSuiteLimits, job_id, 1);
  const auto network = meet_over_ucx(*bootstrap);
  network->send_control(0, {});
  if (!leaves_in_order) {
    // Both connections exist before the peer's last message.
    std::vector<std::byte> got(8);
    Completion receive;
    network->irecv(0, numbered(0, 0), got, receive);
    while (!is_done({receive})) network->poll();
    for (int i = 0; i < kLastWords; ++i) network->send_control(0, std::as_bytes(std::span("why")));
    for (int i = 0; i < 1'000; ++i) network->poll();
    std::quick_exit(0);
  }
  for (ControlFrame frame; !network->receive_control(frame);) network->poll();
  network->shutdown(true);
  return 0;
}

int run_silent_child(const std::string& job_id) {
  die_with_parent();
  const auto bootstrap = shm_rank(ProcessGrid::with_node_sizes({2}), kSuiteLimits, job_id, 1);
  const auto network = meet_over_ucx(*bootstrap);
  bootstrap->send_control(0, {});
  for (;;) network->poll();
}

/// Rank 0 in this process, and rank 1, which plays a role, in another.
struct TwoProcesses {
  explicit TwoProcesses(const std::string& role, std::vector<int> control_peers = {})
      : rank_1({role, job_id}), network(meet_over_ucx(*bootstrap, std::move(control_peers))) {}

  /// Polls until rank 1 has sent a frame, over the network or the bootstrap.
  template <typename Sender>
  void await_frame(Sender& from) {
    for (ControlFrame frame; !from.receive_control(frame);) poll();
  }
  void poll() {
    bootstrap->poll();
    network->poll();
  }

  std::string job_id = unique_job_id();
  ChildProcess rank_1;
  std::unique_ptr<ShmTransport> bootstrap =
      shm_rank(ProcessGrid::with_node_sizes({2}), kSuiteLimits, job_id, 0);
  std::unique_ptr<UcxTransport> network;
};

// The connection to a neighbour in the tree of agreement exists before the first message.
TEST(UcxProcess, AKilledPeerIsNamedIfItIsAControlPeerAlsoThoughNothingWasSaid) {
  for (const bool is_silent : {false, true}) {
    SCOPED_TRACE(is_silent);
    TwoProcesses job(is_silent ? "--child-that-is-silent" : "--child",
                     is_silent ? std::vector<int>{1} : std::vector<int>{});
    if (is_silent) {
      job.await_frame(*job.bootstrap);  // the peer can be reached
    } else {
      job.await_frame(*job.network);
    }
    job.rank_1.kill();
    while (!job.network->failure()) job.network->poll();
    EXPECT_EQ(job.network->failure()->code, ErrorCode::kPeerLost);
    EXPECT_EQ(job.network->failure()->peer, 1);
  }
}

// A late rank finds a peer's report of a failure and that peer's end at the same time.
TEST(UcxProcess, WhatAPeerSaidBeforeItsEndComesFirst) {
  TwoProcesses job("--child-that-dies");
  UcxTransport* const network = job.network.get();
  ControlFrame frame;
  while (!network->receive_control(frame)) network->poll();
  const auto small = pattern(0, 1, 8);
  Completion send;
  network->isend(1, numbered(0, 0), small, send);
  while (!is_done({send})) network->poll();
  job.rank_1.wait();
  while (!network->failure()) network->poll();
  for (int i = 0; i < kLastWords; ++i) EXPECT_TRUE(network->receive_control(frame)) << i;
}

TEST(UcxProcess, APeerThatLeavesInOrderIsNoFailure) {
  TwoProcesses job("--child");
  job.await_frame(*job.network);
  job.network->send_control(1, {});
  while (!job.bootstrap->failure()) job.poll();  // the peer has ended without a goodbye
  for (int i = 0; i < 1'000; ++i) job.network->poll();
  EXPECT_FALSE(job.network->failure());
}

}  // namespace
}  // namespace kolo::test

int main(int argc, char** argv) {
  const std::string first = argc == 3 ? argv[1] : "";
  if (first == "--child") return kolo::test::run_child(argv[2], true);
  if (first == "--child-that-is-silent") return kolo::test::run_silent_child(argv[2]);
  if (first == "--child-that-dies") return kolo::test::run_child(argv[2], false);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
