#include <gtest/gtest.h>

#include <algorithm>

#include "comm/algorithms/compile.h"
#include "comm/schedule/executor.h"
#include "comm/schedule/exposed_buffer.h"
#include "tests/comm/schedule/one_tensor.h"
#include "tests/support/compiled_schedules.h"
#include "tests/support/in_process_transport.h"

namespace kolo {
namespace {

using test::OneTensor;

constexpr std::size_t kExposedPart = 5000;
constexpr int kExposingRanks = 3;

CollectiveSpec spec_of(const std::string& name) {
  const std::vector<std::size_t> counts(kExposingRanks, kExposedPart);
  if (name == "gather") return CollectiveSpec::gather(0, counts);
  if (name == "scatter") return CollectiveSpec::scatter(0, counts);
  if (name == "broadcast")
    return CollectiveSpec::broadcast(0, kExposingRanks, kExposingRanks * kExposedPart);
  return CollectiveSpec::reduce(0, kExposingRanks, kExposingRanks * kExposedPart);
}

struct Places {
  bool results_in_arena = true;
  bool out_of_place = true;
  bool is_scaled = false;  ///< Whether contributions are packed before any other step.
};

/// One of three ranks of a node. Contributions are in the arena; results may be in private memory.
class Member {
 public:
  Member(InProcessHub& hub, int rank, const CollectiveSpec& spec, const Places& places,
         ReduceTeam* team = nullptr)
      : transport_(hub.transport(rank)), executor_(*transport_, nullptr, team) {
    const BucketLayout layout{.count = spec.count(),
                              .placement = Placement::kUser,
                              .out_of_place = places.out_of_place,
                              .in_arenas = true};  // even if they are in private memory
    CompileOptions options;
    options.link_costs.memory.latency_us = 0;  // any size is worth an exposure
    options.link_costs.private_read_us = 0;    // in any memory
    const auto arena = transport_->memory(rank);
    input_ = reinterpret_cast<float*>(arena.data() + arena.size()) - layout.count;
    elsewhere_.resize(layout.count);
    result_ = places.results_in_arena ? input_ - layout.count : elsewhere_.data();
    if (!places.out_of_place) result_ = places.results_in_arena ? input_ : elsewhere_.data();
    if (!places.out_of_place) input_ = result_;
    tensor_ = std::make_shared<OneTensor>(result_, input_);
    Schedule schedule =
        compile(rank, spec, layout, hub.grid(), test::with_algorithm(options, "direct"));
    for (const Step& step : schedule.steps) {
      if (step.kind != StepKind::kExpose) continue;
      notes_.push_back(
          reinterpret_cast<ExposureNote*>(arena.data() + step.target.slot * sizeof(float)));
    }
    executor_.add(std::move(schedule),
                  {.name = "x", .packs_contributions = places.is_scaled, .packer = tensor_});
  }
  ~Member() { transport_->shutdown(false); }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  void start(float value, std::uint64_t iteration) {
    std::fill_n(result_, elsewhere_.size(), -1.0F);
    std::fill_n(input_, elsewhere_.size(), value);
    executor_.start(0, iteration);
  }
  /// Polls once; returns whether the iteration is complete.
  bool poll() {
    transport_->poll();
    executor_.poll();
    return !executor_.busy();
  }
  void abandon() { executor_.abandon(0); }
  void cancel() { executor_.cancel(); }
  Executor& executor() { return executor_; }
  /// Returns the notes of this rank's exposures in the first iteration.
  const std::vector<ExposureNote*>& notes() const { return notes_; }
  std::vector<float> results() const { return {result_, result_ + elsewhere_.size()}; }
  float result(std::size_t index) const { return result_[index]; }
  std::size_t unpacked() const { return tensor_->unpacked(); }

 private:
  std::unique_ptr<Transport> transport_;
  std::vector<float> elsewhere_;
  float* input_ = nullptr;
  float* result_ = nullptr;
  std::shared_ptr<OneTensor> tensor_;
  std::vector<ExposureNote*> notes_;
  Executor executor_;
};

struct Team {
  Team(const std::string& name, const Places& places, bool is_open)
      : hub(ProcessGrid::with_node_sizes({kExposingRanks})) {
    if (is_open) hub.open_memory();
    const CollectiveSpec spec = spec_of(name);
    for (int rank = 0; rank < kExposingRanks; ++rank) {
      members.push_back(std::make_unique<Member>(hub, rank, spec, places));
    }
  }
  void run(std::uint64_t iteration) {
    for (int rank = 0; rank < kExposingRanks; ++rank) {
      members[static_cast<std::size_t>(rank)]->start(value(rank, iteration), iteration);
    }
    for (bool done = false; !done;) {
      done = true;
      for (const auto& member : members) done = member->poll() && done;
    }
  }
  static float value(int rank, std::uint64_t iteration) {
    return static_cast<float>(100 * iteration) + static_cast<float>(rank + 1);
  }

  InProcessHub hub;
  std::vector<std::unique_ptr<Member>> members;
};

/// Returns the expected result of `rank` in element `index`, which is one of its results.
float expected(const std::string& name, int rank, std::size_t index, std::uint64_t iteration) {
  if (name == "gather") return Team::value(static_cast<int>(index / kExposedPart), iteration);
  if (name == "scatter" || name == "broadcast") return Team::value(0, iteration);
  EXPECT_EQ(rank, 0);
  return Team::value(0, iteration) + Team::value(1, iteration) + Team::value(2, iteration);
}

class ExposedResultTest : public testing::TestWithParam<std::string> {};

TEST_P(ExposedResultTest, IsWrittenWhereItIsOrThroughASlot) {
  const CollectiveSpec spec = spec_of(GetParam());
  for (int places = 0; places < 16; ++places) {
    const Places where{.results_in_arena = (places & 1) != 0,
                       .out_of_place = (places & 2) != 0,
                       .is_scaled = (places & 4) != 0};
    if (where.is_scaled && !where.out_of_place) continue;
    Team team(GetParam(), where, (places & 8) != 0);
    for (std::uint64_t iteration = 0; iteration < 3; ++iteration) {
      team.run(iteration);
      for (const CollectiveSpec::Part& part : spec.parts()) {
        for (const int rank : part.receivers) {
          const Member& member = *team.members[static_cast<std::size_t>(rank)];
          const std::size_t begin = part.extent.offset;
          const std::size_t end = std::min(part.extent.end(), spec.count());
          for (std::size_t i = begin; i < end; i = i + 1 < end ? std::min(i + 97, end - 1) : end) {
            ASSERT_EQ(member.result(i), expected(GetParam(), rank, i, iteration))
                << "element " << i << " of rank " << rank << ", iteration " << iteration
                << ", places " << places;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Specs, ExposedResultTest,
                         testing::Values("gather", "scatter", "broadcast", "reduce"),
                         [](const auto& each) { return each.param; });

TEST(ExposedResult, InSmallPagesIsCopiedFromASlot) {
  Team team("gather", {.results_in_arena = false}, false);
  team.hub.open_memory(PageSize::kSmall);
  team.run(0);
  EXPECT_EQ(team.members[0]->unpacked(), 2 * kExposedPart);
}

// In a gather, other ranks write their contributions directly to the result, except parts smaller
// than a cache line.
TEST(ExposedResult, IsCopiedOnlyFromASlot) {
  constexpr std::size_t kPut = kExposedPart / 16 * 16;
  for (const bool is_in_arena : {false, true}) {
    for (const bool is_open : {false, true}) {
      Team team("gather", {.results_in_arena = is_in_arena}, is_open);
      team.run(0);
      EXPECT_EQ(team.members[0]->unpacked(),
                is_in_arena || is_open ? 2 * (kExposedPart - kPut) : 2 * kExposedPart);
    }
  }
}

// After the rank has given up, its memory belongs to the caller again.
TEST(ExposedResult, IsNotWrittenAfterItsRankHasGivenUp) {
  for (const char* const name : {"gather", "reduce"}) {
    for (const bool is_open : {false, true}) {
      Team team(name, {.results_in_arena = !is_open}, is_open);
      Member& root = *team.members[0];
      root.start(1, 0);
      for (int i = 0; i < 10; ++i) EXPECT_FALSE(root.poll());
      root.abandon();
      const std::vector<float> before = root.results();
      team.members[1]->start(2, 0);
      team.members[2]->start(3, 0);
      for (int i = 0; i < 100; ++i) {
        team.members[1]->poll();
        team.members[2]->poll();
      }
      EXPECT_EQ(root.results(), before) << name;
    }
  }
}

// A peer that has begun to write completes its write first.
TEST(ExposedResult, IsTheCallersAgainOnceNoPeerWritesThere) {
  Team team("gather", {}, false);
  Member& root = *team.members[0];
  root.start(1, 0);
  EXPECT_FALSE(root.poll());
  auto writer = std::make_optional<ExposureAccess>(*root.notes().back());
  EXPECT_TRUE(writer->is_allowed());
  root.abandon();
  EXPECT_TRUE(root.executor().is_revoking(0));
  EXPECT_EQ(root.executor().describe_wait(), "peers that write results of bucket 'x'");
  EXPECT_FALSE(root.poll());
  EXPECT_FALSE(ExposureAccess(*root.notes().back()).is_allowed());
  EXPECT_FALSE(root.poll());
  writer.reset();
  EXPECT_TRUE(root.poll());
  EXPECT_FALSE(root.executor().is_revoking(0));
}

TEST(ExposedResult, IsTheCallersAfterTheEndOnceNoPeerWritesThere) {
  Team team("gather", {}, false);
  Member& root = *team.members[0];
  root.start(1, 0);
  EXPECT_FALSE(root.poll());
  auto writer = std::make_optional<ExposureAccess>(*root.notes().back());
  root.cancel();
  EXPECT_FALSE(root.executor().poll_revoking());
  writer.reset();
  EXPECT_TRUE(root.executor().poll_revoking());
}

// Helpers copy pieces of a large slot.
TEST(ExposedResult, IsCopiedFromASlotByPieces) {
  constexpr std::size_t kLarge = 300'007;
  const CollectiveSpec spec =
      CollectiveSpec::gather(0, std::vector<std::size_t>(kExposingRanks, kLarge));
  InProcessHub hub(
      ProcessGrid::with_node_sizes({kExposingRanks}),
      {.arena_bytes = std::size_t{8} << 20, .flags_per_peer = 1U << 12, .counters = 1U << 10});
  ReduceTeam helped(1, {});
  std::vector<std::unique_ptr<Member>> members;
  for (int rank = 0; rank < kExposingRanks; ++rank) {
    members.push_back(std::make_unique<Member>(hub, rank, spec, Places{.results_in_arena = false},
                                               rank == 0 ? &helped : nullptr));
    members.back()->start(Team::value(rank, 0), 0);
  }
  for (bool done = false; !done;) {
    done = true;
    for (const auto& member : members) done = member->poll() && done;
  }
  for (std::size_t i = 0; i < spec.count(); ++i) {
    ASSERT_EQ(members[0]->result(i), Team::value(static_cast<int>(i / kLarge), 0)) << i;
  }
}

}  // namespace
}  // namespace kolo
