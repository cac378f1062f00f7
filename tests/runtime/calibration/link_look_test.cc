// Looks over links of one rate that are remembered as of another, in virtual time.

#include "runtime/calibration/link_look.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

#include "tests/support/rank_harness.h"
#include "tests/support/virtual_network.h"

namespace kolo {
namespace {

constexpr double kBurst = 262144;

struct Looked {
  std::vector<LinkLook> links;
  double took_us = 0;
};

Looked look(std::size_t nodes, double rate, const LinkCosts& remembered) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes(std::vector<int>(nodes, 1));
  const test::VirtualLink link{.bytes_per_us = rate, .burst_bytes = kBurst, .latency_us = 20};
  test::VirtualNetwork network(std::vector<test::VirtualLink>(nodes, link), nodes);
  std::vector<std::optional<LinkLook>> by_rank(nodes);
  test::run_ranks(static_cast<int>(nodes), [&](const test::RankRun& run) {
    const auto transport = network.transport(run.rank());
    by_rank[static_cast<std::size_t>(run.rank())] =
        look_at_link(*transport, grid, {.transport = {}}, network, remembered);
  });
  Looked looked;
  for (const auto& each : by_rank) {
    if (each) looked.links.push_back(*each);
  }
  looked.took_us =
      std::chrono::duration<double, std::micro>(network.now().time_since_epoch()).count();
  return looked;
}

TEST(LinkLook, FindsRatesThatWereOthersAndNoneThatWereNot) {
  constexpr double kRates[] = {12, 120, 1200};
  for (const std::size_t nodes : {2u, 3u, 4u}) {
    for (const double before : kRates) {
      for (const double now : kRates) {
        SCOPED_TRACE(testing::Message()
                     << nodes << " nodes, " << before << " bytes per us before, now " << now);
        LinkCosts remembered;
        remembered.network = {
            .latency_us = 26, .bytes_per_us = before, .message_us = 2, .burst_bytes = kBurst};
        const Looked looked = look(nodes, now, remembered);
        ASSERT_EQ(looked.links.size(), nodes / 2);
        for (std::size_t i = 0; i < looked.links.size(); ++i) {
          EXPECT_EQ(looked.links[i].node, static_cast<int>(2 * i));
        }
        const auto change = find_change(remembered, looked.links);
        EXPECT_EQ(change.has_value(), before != now);
        // What is under way at the end may be longer than it was taken to be.
        const double tail_us = static_cast<double>(NetworkEffort{}.tail_bytes()) / now;
        const double limit_us =
            std::chrono::duration<double, std::micro>(kLookWithin).count() + 200;
        EXPECT_LE(looked.took_us, now < before ? limit_us + tail_us : limit_us);
      }
    }
  }
}

}  // namespace
}  // namespace kolo
