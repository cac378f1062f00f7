#include <algorithm>
#include <array>

#include <gtest/gtest.h>

#include "comm/algorithms/compile.h"
#include "comm/schedule/executor.h"
#include "comm/schedule/exposed_buffer.h"
#include "tests/comm/schedule/one_tensor.h"
#include "tests/support/compiled_schedules.h"
#include "tests/support/in_process_transport.h"

namespace kolo {
namespace {

using test::OneTensor;

constexpr std::size_t kPart = 5000;

enum class Where { kInArena, kElsewhere, kScaled };

/// A rank that contributes a part to an all-gather, from its arena's end or from private memory.
class GatheringRank {
 public:
  GatheringRank(InProcessHub& hub, int rank, Where where)
      : transport_(hub.transport(rank)), executor_(*transport_) {
    const auto ranks = static_cast<std::size_t>(hub.grid().world_size());
    const std::vector<std::size_t> counts(ranks, kPart);
    const BucketLayout layout{
        .count = ranks * kPart, .placement = Placement::kUser, .out_of_place = true};
    CompileOptions options;
    options.link_costs.private_read_us = 0;
    Schedule schedule = compile(rank, CollectiveSpec::all_gather(counts), layout, hub.grid(),
                                test::with_algorithm(options, "direct"));
    result_.resize(layout.count);
    elsewhere_.resize(kPart);
    const auto arena = transport_->memory(rank);
    input_ = where == Where::kInArena
                 ? reinterpret_cast<float*>(arena.data() + arena.size() - kPart * sizeof(float))
                 : elsewhere_.data();
    tensor_ = std::make_shared<OneTensor>(result_.data(),
                                          input_ - static_cast<std::size_t>(rank) * kPart);
    executor_.add(std::move(schedule), {.name = "x",
                                        .packs_contributions = where == Where::kScaled,
                                        .exposure_stores = Stores::kStreaming,
                                        .packer = tensor_});
  }
  ~GatheringRank() { transport_->shutdown(false); }
  GatheringRank(const GatheringRank&) = delete;
  GatheringRank& operator=(const GatheringRank&) = delete;

  void start(float value, std::uint64_t iteration) {
    std::fill_n(input_, kPart, value);
    executor_.start(0, iteration);
  }
  bool poll() {
    transport_->poll();
    executor_.poll();
    return !executor_.busy();
  }
  float result_of(int rank, std::size_t index) const {
    return result_[static_cast<std::size_t>(rank) * kPart + index];
  }
  std::size_t packed() const { return tensor_->packed(); }
  std::size_t streamed() const { return tensor_->streamed(); }

 private:
  std::unique_ptr<Transport> transport_;
  std::vector<float> result_, elsewhere_;
  float* input_ = nullptr;
  std::shared_ptr<OneTensor> tensor_;
  Executor executor_;
};

/// The parameter is the page size of private memory that ranks of a node can read from each other,
/// or empty if they cannot read it.
class ExposedBuffer : public testing::TestWithParam<std::optional<PageSize>> {
 protected:
  void open(InProcessHub& hub) const {
    if (GetParam()) hub.open_memory(*GetParam());
  }
};

// Some ranks of a node may expose their contributions while others copy them to a slot.
TEST_P(ExposedBuffer, IsReadWhereItIsOrFromASlot) {
  InProcessHub hub(ProcessGrid::with_node_sizes({3, 1}));
  open(hub);
  const std::vector<Where> where{Where::kInArena, Where::kElsewhere, Where::kScaled,
                                 Where::kInArena};
  std::vector<std::unique_ptr<GatheringRank>> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.push_back(
        std::make_unique<GatheringRank>(hub, rank, where[static_cast<std::size_t>(rank)]));
  }
  for (std::uint64_t iteration = 0; iteration < 3; ++iteration) {
    const auto value = [&](int rank) {
      return static_cast<float>(10 * iteration) + static_cast<float>(rank);
    };
    for (int rank = 0; rank < 4; ++rank) {
      ranks[static_cast<std::size_t>(rank)]->start(value(rank), iteration);
    }
    for (bool done = false; !done;) {
      done = true;
      for (const auto& rank : ranks) done = rank->poll() && done;
    }
    for (const auto& rank : ranks) {
      for (int from = 0; from < 4; ++from) {
        for (const std::size_t index : {std::size_t{0}, kPart / 2, kPart - 1}) {
          ASSERT_EQ(rank->result_of(from, index), value(from)) << "iteration " << iteration;
        }
      }
    }
  }
  EXPECT_EQ(ranks[0]->packed(), 0U);
  EXPECT_EQ(ranks[1]->packed(), GetParam() == PageSize::kHuge ? 0 : 3 * kPart);
  EXPECT_EQ(ranks[1]->streamed(), ranks[1]->packed());
  EXPECT_EQ(ranks[2]->packed(), 2 * 3 * kPart) << "for others and for itself";
  EXPECT_EQ(ranks[2]->streamed(), 3 * kPart) << "only for others";
}

// The caller may write the contribution again after all peers have read it.
TEST_P(ExposedBuffer, EndsWhenItHasBeenRead) {
  InProcessHub hub(ProcessGrid::with_node_sizes({2}));
  open(hub);
  GatheringRank owner(hub, 0, Where::kElsewhere), reader(hub, 1, Where::kInArena);
  owner.start(1, 0);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(owner.poll());
  reader.start(2, 0);
  while (!owner.poll()) reader.poll();
  while (!reader.poll()) owner.poll();
  EXPECT_EQ(reader.result_of(0, kPart - 1), 1);
}

INSTANTIATE_TEST_SUITE_P(Memory, ExposedBuffer,
                         testing::Values(std::nullopt, PageSize::kSmall, PageSize::kHuge),
                         [](const auto& each) {
                           if (!each.param) return "private";
                           return each.param == PageSize::kSmall ? "in_small_pages"
                                                                 : "in_huge_pages";
                         });

// An earlier bucket had seven iterations, and its flags were raised only five times.
constexpr std::uint64_t kFirstIteration = 7, kFlagBase = 5;

/// One of two ranks that gather one element each at rank 0, through alternating slots.
class RankOfTwo {
 public:
  RankOfTwo(InProcessHub& hub, int rank) : transport_(hub.transport(rank)), executor_(*transport_) {
    const BucketLayout layout{.count = 2, .placement = Placement::kUser, .out_of_place = true};
    const PartExtents counts(2, 1);
    Schedule schedule = compile(rank, CollectiveSpec::gather(0, counts), layout, hub.grid(),
                                {.algorithm = "direct"});
    executor_.add(std::move(schedule),
                  {.name = "x",
                   .first_iteration = kFirstIteration,
                   .flag_base = kFlagBase,
                   .packer = std::make_shared<test::OneTensor>(result_.data(), input_.data())});
  }
  ~RankOfTwo() { transport_->shutdown(false); }
  RankOfTwo(const RankOfTwo&) = delete;
  RankOfTwo& operator=(const RankOfTwo&) = delete;

  void start(std::uint64_t iteration, float value) {
    input_.fill(value);
    executor_.start(0, kFirstIteration + iteration);
  }
  /// Returns whether the iteration ends without the other rank.
  bool ends() {
    for (int i = 0; i < 100; ++i) {
      transport_->poll();
      executor_.poll();
    }
    return !executor_.busy();
  }
  float result_of(std::size_t rank) const { return result_[rank]; }

 private:
  std::unique_ptr<Transport> transport_;
  std::array<float, 2> result_{}, input_{};
  Executor executor_;
};

TEST(Turns, AHolderIsOneIterationAheadOfItsReader) {
  InProcessHub hub(ProcessGrid::with_node_sizes({2}));
  RankOfTwo root(hub, 0), other(hub, 1);
  other.start(0, 10);
  EXPECT_TRUE(other.ends());
  for (std::uint64_t iteration = 0; iteration < 4; ++iteration) {
    SCOPED_TRACE(iteration);
    other.start(iteration + 1, static_cast<float>(11 + iteration));
    EXPECT_FALSE(other.ends()) << "its former turn has not been read";
    root.start(iteration, static_cast<float>(iteration));
    EXPECT_TRUE(root.ends());
    EXPECT_EQ(root.result_of(0), static_cast<float>(iteration));
    EXPECT_EQ(root.result_of(1), static_cast<float>(10 + iteration));
    EXPECT_TRUE(other.ends());
  }
}

}  // namespace
}  // namespace kolo
