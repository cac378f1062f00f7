// Tests closing: operations in flight complete, and no rank waits for a closed one.

#include <gmock/gmock.h>

#include "comm/transport/forwarding_transport.h"
#include "tests/support/engine_job.h"
#include "tests/support/message_calls.h"

namespace kolo {
namespace {

using test::EngineJob;
using test::error_of;
using testing::HasSubstr;

TEST(EngineClosing, ClosesTogether) {
  EngineJob job(ProcessGrid::with_node_sizes({2, 2}), {}, 17);
  std::vector<std::shared_ptr<Operation>> operations;
  for (int rank = 0; rank < 4; ++rank)
    operations.push_back(job.submit(rank, {.kind = OperationKind::kClose}));
  job.finish(operations);
  for (const auto& operation : operations) EXPECT_EQ(error_of(*operation), "");
  const auto late = job.submit(1, {.kind = OperationKind::kBarrier, .name = "late"});
  ASSERT_TRUE(late->ticket->done());
  EXPECT_THAT(error_of(*late), HasSubstr("closed"));
}

TEST(EngineClosing, WhatIsUnderWayWhenAllCloseEndsWell) {
  for (const std::vector<int>& nodes : {std::vector<int>{3}, {1, 1}, {2, 1}}) {
    for (const std::size_t count : {std::size_t{100}, std::size_t{60'000}}) {
      for (std::uint64_t seed = 0; seed < 10; ++seed) {
        SCOPED_TRACE(std::to_string(count) + " elements, seed " + std::to_string(seed));
        EngineJob job(ProcessGrid::with_node_sizes(nodes), {}, seed);
        const auto ranks = static_cast<std::size_t>(job.world_size());
        std::vector<std::vector<float>> data;
        std::vector<std::shared_ptr<Operation>> operations;
        for (std::size_t rank = 0; rank < ranks; ++rank) {
          data.emplace_back(count, static_cast<float>(rank + 1));
          operations.push_back(
              job.submit(static_cast<int>(rank), test::all_reduce("x", data.back())));
          operations.push_back(job.submit(static_cast<int>(rank), {.kind = OperationKind::kClose}));
        }
        job.finish(operations);
        for (const auto& operation : operations) EXPECT_EQ(error_of(*operation), "");
        const auto sum = static_cast<float>(ranks * (ranks + 1) / 2);
        for (const auto& each : data) EXPECT_EQ(each, std::vector<float>(count, sum));
      }
    }
  }
}

// Rank 1 submits one use and closes. The other ranks are later, and have one more use.
TEST(EngineClosing, ARankThatClosesComesToWhatItHadBegun) {
  for (const std::vector<int>& nodes : {std::vector<int>{2}, {3}, {1, 1}, {2, 1}}) {
    for (const bool is_known : {false, true}) {
      for (std::uint64_t seed = 0; seed < 10; ++seed) {
        SCOPED_TRACE(std::string(is_known ? "known" : "new") + ", seed " + std::to_string(seed));
        EngineJob job(ProcessGrid::with_node_sizes(nodes), {}, seed);
        std::vector<float> data[3] = {std::vector<float>(100), std::vector<float>(100),
                                      std::vector<float>(100)};
        const auto submit = [&](int rank) {
          return job.submit(rank, test::all_reduce("x", data[rank]));
        };
        if (is_known) {
          std::vector<std::shared_ptr<Operation>> first;
          for (int rank = 0; rank < job.world_size(); ++rank) first.push_back(submit(rank));
          job.finish(first);
        }
        std::vector<std::shared_ptr<Operation>> ends, uses{submit(1)}, more;
        ends.push_back(job.submit(1, {.kind = OperationKind::kClose}));
        job.poll(seed * 40);
        for (int rank = 0; rank < job.world_size(); ++rank) {
          if (rank == 1) continue;
          uses.push_back(submit(rank));
          more.push_back(submit(rank));
        }
        job.finish(uses);
        for (const auto& use : uses) EXPECT_EQ(error_of(*use), "");
        job.finish(more);
        for (const auto& use : more) EXPECT_THAT(error_of(*use), HasSubstr("rank 1 has closed"));
        for (int rank = 0; rank < job.world_size(); ++rank) {
          if (rank != 1) ends.push_back(job.submit(rank, {.kind = OperationKind::kClose}));
        }
        job.finish(ends);
        for (const auto& end : ends) EXPECT_EQ(error_of(*end), "");
      }
    }
  }
}

// One rank's join ends before that of another, which still stands in for the remaining uses.
TEST(EngineClosing, ARankClosesAsSoonAsItsJoinIsOver) {
  for (const std::vector<int>& nodes : {std::vector<int>{3}, {1, 1}, {2, 1}}) {
    for (std::uint64_t seed = 0; seed < 30; ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      EngineJob job(ProcessGrid::with_node_sizes(nodes), {}, seed);
      const auto ranks = static_cast<std::size_t>(job.world_size());
      std::vector<std::vector<float>> data(ranks, std::vector<float>(100, 1.0F));
      std::vector<std::shared_ptr<JoinTicket>> joins;
      std::vector<std::shared_ptr<Operation>> ends(ranks);
      for (int rank = 0; rank < job.world_size(); ++rank) {
        auto& mine = data[static_cast<std::size_t>(rank)];
        if (rank != 1) job.submit(rank, test::all_reduce("x", mine));
        joins.push_back(std::make_shared<JoinTicket>());
        job.engine(rank).submit(joins.back());
      }
      job.run_until([&] {
        for (std::size_t rank = 0; rank < ranks; ++rank) {
          if (ends[rank] || !joins[rank]->done()) continue;
          ends[rank] = job.submit(static_cast<int>(rank), {.kind = OperationKind::kClose});
        }
        return std::ranges::all_of(ends,
                                   [](const auto& end) { return end && end->ticket->done(); });
      });
      for (const auto& end : ends) EXPECT_EQ(error_of(*end), "");
    }
  }
}

// Messages to the last rank, which never had the gradient, are not strays.
TEST(EngineClosing, AGradientThatOneRankNeverHadIsGivenUpWhenAllClose) {
  using Nodes = std::vector<int>;
  for (const Nodes& nodes : {Nodes{3}, Nodes{1, 1}, Nodes{1, 1, 1}, Nodes{2, 1}}) {
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      EngineJob job(ProcessGrid::with_node_sizes(nodes), {.fusion_bytes = 0}, seed);
      const auto sets = job.register_sets({{.name = "a", .shape = {30}}});
      for (int rank = 0; rank + 1 < job.world_size(); ++rank) {
        test::mark(job.engine(rank), *sets[static_cast<std::size_t>(rank)], 0);
      }
      job.poll(200);
      EXPECT_FALSE(job.engine(0).idle()) << "it started without the last rank";
      EXPECT_EQ(job.close(), "") << "seed " << seed;
    }
  }
}

/// Delays control frames to rank 0 while `is_slow`.
class SlowTransport final : public ForwardingTransport {
 public:
  SlowTransport(std::unique_ptr<Transport> transport, const bool& is_slow)
      : ForwardingTransport(*transport), transport_(std::move(transport)), is_slow_(is_slow) {}

  void send_control(int peer, std::span<const std::byte> bytes) override {
    if (peer != 0 || !is_slow_) return below().send_control(peer, bytes);
    delayed_.emplace_back(bytes.begin(), bytes.end());
  }
  bool poll() override {
    if (!is_slow_) {
      for (const auto& frame : std::exchange(delayed_, {})) below().send_control(0, frame);
    }
    return below().poll();
  }

 private:
  const std::unique_ptr<Transport> transport_;
  const bool& is_slow_;
  std::vector<std::vector<std::byte>> delayed_;
};

// Agreement of rank 9 goes through rank 1, so it could overtake what rank 9 sends to rank 0.
TEST(EngineClosing, WaitsForOffersOfMessagesInFlight) {
  bool is_slow = true;
  EngineJob job(ProcessGrid::with_node_sizes(std::vector<int>(10, 1)), {}, 18, std::nullopt,
                {.transport = [&](int rank, std::unique_ptr<Transport> transport) {
                  if (rank == 9) {
                    transport = std::make_unique<SlowTransport>(std::move(transport), is_slow);
                  }
                  return transport;
                }});
  std::vector<float> data(16'000, 9);
  const auto sent = test::send(job, 9, 0, data, 4);
  job.run_until([&] { return sent->is_over(); });
  std::vector<std::shared_ptr<Operation>> ends;
  for (int rank = 0; rank < 10; ++rank) {
    ends.push_back(job.submit(rank, {.kind = OperationKind::kClose}));
  }
  testing::internal::CaptureStderr();
  job.poll(20'000);
  EXPECT_TRUE(std::ranges::none_of(ends, [](const auto& end) { return end->ticket->done(); }));
  is_slow = false;
  job.finish(ends);
  for (const auto& end : ends) EXPECT_EQ(error_of(*end), "");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("rank 9 sends 16000 elements of float32 with tag 4 to rank 0, which has "
                        "closed without receiving them"));
}

}  // namespace
}  // namespace kolo
