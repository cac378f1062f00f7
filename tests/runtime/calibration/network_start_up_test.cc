// Starts jobs on several nodes over UCX on this machine's interfaces. Sanitizers report what UCX
// does.

#include "comm/native/network_factory.h"
#include "tests/runtime/calibration/start_up_job.h"

namespace kolo {
namespace {

using test::options_with;
using test::rounds_of;

TEST(NetworkStartUp, OnSeveralNodesTakesFourRoundsAndOneToTimeADevice) {
  if (!network_uses_tcp()) GTEST_SKIP() << "this build has no network over TCP";
  for (const std::string device : {"cpu", "host"}) {
    for (const std::vector<std::string>& nodes :
         {std::vector<std::string>{"a", "b"}, {"a", "a", "b", "c"}}) {
      EXPECT_EQ(rounds_of(nodes, options_with(device)), device == "cpu" ? 4 : 5)
          << device << " on " << nodes.size() << " ranks";
    }
  }
}

/// A rendezvous that loses its peers after a number of rounds.
class LosingRendezvous final : public Rendezvous {
 public:
  LosingRendezvous(Rendezvous& other, int rounds) : other_(other), rounds_left_(rounds) {}
  int rank() const override { return other_.rank(); }
  int size() const override { return other_.size(); }
  std::vector<std::string> all_gather(const std::string& mine) override {
    if (rounds_left_-- > 0) return other_.all_gather(mine);
    throw KoloError({.code = ErrorCode::kPeerLost, .what = "lost in the rendezvous"});
  }

 private:
  Rendezvous& other_;
  int rounds_left_;
};

// A collective before that would wait for the failed rank until its time limit.
TEST(NetworkStartUp, ARankWhoseDeviceDoesNotConnectIsNoticedBeforeTheFirstCollective) {
  if (!network_uses_tcp()) GTEST_SKIP() << "this build has no network over TCP";
  auto endpoints = make_memory_rendezvous(2, test::kLimit);
  test::HostDevices devices(2, /*failing=*/1);
  test::run_ranks(2, [&](const test::RankRun& run) {
    LosingRendezvous rendezvous(*endpoints[static_cast<std::size_t>(run.rank())], 3);
    Options options = options_with("host");
    options.node_id = run.rank() == 0 ? "a" : "b";
    try {
      connect(rendezvous, options, devices.source());
      ADD_FAILURE() << "did not fail";
    } catch (const KoloError& error) {
      const auto expected = run.rank() == 0 ? ErrorCode::kPeerLost : ErrorCode::kInternal;
      EXPECT_EQ(error.error().code, expected) << error.what();
    }
  });
}

}  // namespace
}  // namespace kolo
