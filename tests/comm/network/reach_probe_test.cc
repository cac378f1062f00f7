#include "comm/network/reach_probe.h"

#include <gmock/gmock.h>

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <thread>

#include "comm/base/byte_codec.h"
#include "comm/network/network_path.h"
#include "comm/rendezvous/tcp_socket.h"
#include "tests/support/memory_rendezvous.h"
#include "tests/support/rank_harness.h"

namespace kolo {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const std::vector<NetworkInterface> kLoopback = {
    {.name = "lo", .address = "127.0.0.1", .is_loopback = true}};

NodeReach probe(const std::string& job_id, const ReachTarget& target, const ReachLimits& limits) {
  return probe_reach(job_id, kLoopback, {target}, limits);
}

TEST(ReachProbe, FindsTheNodeOfItsJob) {
  ReachListener listener;
  listener.serve("job", 7);
  const NodeReach reach =
      probe("job", {.node = 7, .interfaces = kLoopback, .port = listener.port()}, {});
  EXPECT_THAT(reach.ways, ElementsAre(Way{.to_node = 7, .to = 0, .from = 0}));
  EXPECT_THAT(reach.no_ways, IsEmpty());
}

TEST(ReachProbe, TakesNoOtherNodeOrJobForIt) {
  ReachListener listener;
  listener.serve("job", 7);
  for (const auto& [job, node] : {std::pair("job", 8), std::pair("another", 7)}) {
    const NodeReach reach =
        probe(job, {.node = node, .interfaces = kLoopback, .port = listener.port()}, {});
    EXPECT_THAT(reach.ways, IsEmpty());
    ASSERT_THAT(reach.no_ways, SizeIs(1));
    EXPECT_EQ(reach.no_ways[0].why, "127.0.0.1: another program or machine answers there");
  }
}

TEST(ReachProbe, SaysWhyNobodyAnswers) {
  std::uint16_t port = 0;
  {
    const FileDescriptor closed = listen_on("localhost", 0);
    port = port_of(closed.get());
  }
  const NodeReach reach = probe("job", {.node = 7, .interfaces = kLoopback, .port = port}, {});
  ASSERT_THAT(reach.no_ways, SizeIs(1));
  EXPECT_EQ(reach.no_ways[0].why, "127.0.0.1: Connection refused");
}

TEST(ReachProbe, WaitsForAListenerThatServesLater) {
  ReachListener listener;
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    listener.serve("job", 7);
  });
  const NodeReach reach =
      probe("job", {.node = 7, .interfaces = kLoopback, .port = listener.port()}, {});
  later.join();
  EXPECT_THAT(reach.ways, SizeIs(1));
}

TEST(ReachProbe, GivesUpASilentListener) {
  const FileDescriptor silent = listen_on("localhost", 0);
  const NodeReach reach =
      probe("job", {.node = 7, .interfaces = kLoopback, .port = port_of(silent.get())},
            {.all = std::chrono::milliseconds(50)});
  ASSERT_THAT(reach.no_ways, SizeIs(1));
  EXPECT_EQ(reach.no_ways[0].why, "127.0.0.1: no answer in time");
}

TEST(ReachProbe, AWayThroughAnInterfaceThatIsLeftOutIsNone) {
  ReachListener listener;
  listener.serve("job", 7);
  const NodeReach reach =
      probe_reach("job", {{.name = "eth9", .address = "10.9.9.9"}},
                  {{.node = 7, .interfaces = kLoopback, .port = listener.port()}});
  EXPECT_THAT(reach.ways, IsEmpty());
  ASSERT_THAT(reach.no_ways, SizeIs(1));
  EXPECT_EQ(reach.no_ways[0].why, "127.0.0.1: the system goes there through 127.0.0.1");
}

// A slow node looks for its own way later than the others wait for its answer.
TEST(NetworkPath, ANodeAnswersBeforeItLooksForItsWay) {
  const auto endpoints = make_memory_rendezvous(1, std::chrono::seconds(60));
  BatchedExchange exchange(*endpoints[0]);
  PathFinder finder("lo");
  finder.post(exchange);
  exchange.run();
  finder.serve(ProcessGrid(std::vector<std::string>{"a"}), 0, "job");
  const std::string& posted = exchange.texts("reach listener")[0];
  ByteReader reader(std::as_bytes(std::span(posted)));
  const auto port = reader.number<std::uint16_t>();
  const NodeReach reach = probe("job", {.node = 0, .interfaces = kLoopback, .port = port}, {});
  EXPECT_THAT(reach.ways, SizeIs(1));
}

TEST(NetworkPath, RanksOfAllNodesFindTheirWay) {
  const ProcessGrid grid({"a", "a", "b", "c"});
  auto endpoints = make_memory_rendezvous(grid.world_size(), std::chrono::seconds(60));
  test::run_ranks(grid.world_size(), [&](const test::RankRun& run) {
    CountedRendezvous rendezvous(*endpoints[static_cast<std::size_t>(run.rank())]);
    BatchedExchange exchange(rendezvous);
    PathFinder finder("lo");
    finder.post(exchange);
    exchange.run();
    finder.serve(grid, run.rank(), "job");
    const NetworkPath path = finder.find(exchange, grid, "job", std::chrono::seconds(60));
    EXPECT_EQ(path.interface, "lo");
    EXPECT_EQ(path.address, "127.0.0.1");
    EXPECT_THAT(path.problem, IsEmpty());
    EXPECT_EQ(rendezvous.rounds(), 2);
  });
}

}  // namespace
}  // namespace kolo
