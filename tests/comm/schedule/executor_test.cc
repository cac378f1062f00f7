#include "comm/schedule/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>

#include "comm/base/error.h"
#include "comm/collective/compile.h"
#include "comm/collective/reduce_kernels.h"
#include "comm/collective/reference_kernels.h"
#include "comm/schedule/reduce_team.h"
#include "comm/transport/in_process_transport.h"
#include "tests/support/allocation_counter.h"
#include "tests/support/node_shapes.h"
#include "tests/support/rank_harness.h"

namespace kolo {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Job {
  std::vector<int> nodes;
  std::string algorithm;
};

std::string text(const Job& job) { return test::shape_text(job.nodes) + " " + job.algorithm; }

/// The algorithm sums every element in one place in the order of ranks, so that its bits are those
/// of the reference kernel.
bool sums_in_order(const std::string& algorithm) {
  return algorithm == "direct" || algorithm == "flat";
}

/// What `rank` contributes to element `index`: anything if sums are in order, else 1 or 2, so that
/// sums and products of a few ranks are exact in every dtype and order.
double contribution(bool in_order, int rank, std::size_t index, std::uint64_t iteration) {
  const std::uint64_t place =
      (static_cast<std::uint64_t>(rank) * 1'000'003 + index) * 8 + iteration;
  if (!in_order)
    return static_cast<double>((static_cast<std::size_t>(rank) + index + iteration) % 2 + 1);
  return static_cast<double>(place * 0x9e3779b97f4a7c15u >> 40) / (1 << 20) - 8;
}

/// The value of one element of `layout`, as the reference kernel combines it.
double combined(const BucketLayout& layout, bool in_order, int ranks, std::size_t index,
                std::uint64_t iteration) {
  std::vector<std::array<std::byte, 8>> elements(static_cast<std::size_t>(ranks));
  std::vector<const void*> sources;
  for (int rank = 0; rank < ranks; ++rank) {
    const double value = contribution(in_order, rank, index, iteration);
    sources.push_back(elements[static_cast<std::size_t>(rank)].data());
    reference::convert(layout.dtype, elements[static_cast<std::size_t>(rank)].data(),
                       DType::kFloat64, &value, 1, 1.0);
  }
  std::array<std::byte, 8> result{};
  reference::reduce(layout.dtype, layout.op, result.data(), sources, 1,
                    layout.op == ReduceOp::kAverage ? 1.0 / ranks : 1.0);
  double value = 0;
  reference::convert(DType::kFloat64, &value, layout.dtype, result.data(), 1, 1.0);
  return value;
}

/// The caller's tensors of a bucket: of up to 45 elements each, with a gap of five before the next;
/// out of place as many again for the contributions.
class UserTensors final : public Packer {
 public:
  UserTensors(const BucketLayout& layout, DType tensor_dtype)
      : bucket_dtype_(layout.dtype), dtype_(tensor_dtype) {
    for (std::size_t begin = 0; begin < layout.count; begin += kPeriod) {
      tensors_.emplace_back(std::min(kTensor, layout.count - begin) * size_of(dtype_));
    }
    if (layout.out_of_place) inputs_ = tensors_;
  }

  /// Null for an element of a gap.
  std::byte* element(std::size_t index) { return element(tensors_, index); }
  /// The same of the contribution.
  std::byte* input(std::size_t index) {
    return element(inputs_.empty() ? tensors_ : inputs_, index);
  }

  void pack(std::size_t offset, std::size_t count, void* bucket) override {
    for (std::size_t i = 0; i < count; ++i) {
      std::byte* const to = static_cast<std::byte*>(bucket) + i * size_of(bucket_dtype_);
      const std::byte* const from = input(offset + i);
      if (from == nullptr) {
        std::memset(to, 0, size_of(bucket_dtype_));
      } else {
        convert(bucket_dtype_, to, dtype_, from, 1, 1.0);
      }
    }
  }
  void unpack(std::size_t offset, std::size_t count, const void* bucket, Stores stores) override {
    for (std::size_t i = 0; i < count; ++i) {
      const auto* const from = static_cast<const std::byte*>(bucket) + i * size_of(bucket_dtype_);
      std::byte* const to = element(offset + i);
      if (to != nullptr) convert(dtype_, to, bucket_dtype_, from, 1, 1.0, stores);
    }
  }
  Piece piece(std::size_t offset, std::size_t count) override {
    const std::size_t place = offset % kPeriod;
    return {.data = element(offset),
            .input = input(offset),
            .count = std::min(count, (place < kTensor ? kTensor : kPeriod) - place)};
  }

 private:
  static constexpr std::size_t kTensor = 45, kPeriod = 50;
  using Tensors = std::vector<std::vector<std::byte>>;

  std::byte* element(Tensors& tensors, std::size_t index) {
    if (index % kPeriod >= kTensor) return nullptr;
    return tensors[index / kPeriod].data() + index % kPeriod * size_of(dtype_);
  }

  DType bucket_dtype_, dtype_;
  Tensors tensors_, inputs_;
};

/// One rank of a job with buckets of all kinds.
class Rank {
 public:
  /// `helpers` threads help it.
  Rank(InProcessHub& hub, int rank, int helpers = 0)
      : ranks_(hub.grid().world_size()),
        transport_(hub.transport(rank)),
        team_(helpers, SpinBudget{}),
        executor_(*transport_, nullptr, &team_) {}

  /// What is in flight refers to the executor's memory, so the transport ends first.
  ~Rank() { transport_->shutdown(false); }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  Executor& executor() { return executor_; }
  Transport& transport() { return *transport_; }

  void add(const BucketLayout& layout, const ProcessGrid& grid, const CompileOptions& options,
           std::uint64_t first_iteration = 0) {
    const auto bucket = static_cast<BucketId>(buckets_.size());
    Schedule schedule = compile_all_reduce(transport_->rank(), layout, grid, options);
    Binding binding{.name = "bucket " + std::to_string(bucket),
                    .bucket = bucket,
                    .first_iteration = first_iteration,
                    .first_flag = next_flag_,
                    .arena_offset = arena_end_,
                    .staging_offset = arena_end_ + arena_needs(schedule).bucket_bytes,
                    .scale = layout.op == ReduceOp::kAverage ? 1.0 / ranks_ : 1.0};
    next_flag_ += schedule.flag_count;
    arena_end_ += arena_needs(schedule).total();
    Bucket added{.layout = layout, .in_order = sums_in_order(options.algorithm)};
    if (layout.placement != Placement::kInPlace) {
      if (layout.placement == Placement::kStaged) added.dtype = DType::kFloat64;
      if (layout.placement == Placement::kUser) added.dtype = layout.dtype;
      added.tensors = std::make_shared<UserTensors>(layout, added.dtype);
      binding.packer = added.tensors;
    } else {
      added.dtype = layout.dtype;
      added.data = transport_->memory(transport_->rank()).data() + binding.arena_offset;
    }
    buckets_.push_back(std::move(added));
    executor_.add(std::move(schedule), std::move(binding));
  }

  void start(BucketId bucket, std::uint64_t iteration) {
    const Bucket& started = buckets_[bucket];
    for (std::size_t i = 0; i < started.layout.count; ++i) {
      const double value = contribution(started.in_order, transport_->rank(), i, iteration);
      std::byte* const to = started.input(i);
      if (to != nullptr) convert(started.dtype, to, DType::kFloat64, &value, 1, 1.0);
    }
    executor_.start(bucket, iteration);
  }

  /// The bytes of all elements, side by side.
  std::vector<std::byte> result(BucketId bucket) const {
    const Bucket& finished = buckets_[bucket];
    std::vector<std::byte> bytes;
    for (std::size_t i = 0; i < finished.layout.count; ++i) {
      const std::byte* const from = finished.element(i);
      if (from != nullptr) bytes.insert(bytes.end(), from, from + size_of(finished.dtype));
    }
    return bytes;
  }

  /// Empty, or what is wrong with the result of an iteration.
  std::string wrong(BucketId bucket, std::uint64_t iteration) {
    const Bucket& finished = buckets_[bucket];
    const BucketLayout& layout = finished.layout;
    for (std::size_t i = 0; i < layout.count; ++i) {
      const std::byte* const from = finished.element(i);
      if (from == nullptr) continue;
      if (layout.out_of_place && !holds_contribution(finished, i, iteration)) {
        return "rank " + std::to_string(transport_->rank()) + " bucket " + std::to_string(bucket) +
               " has another contribution in element " + std::to_string(i);
      }
      double value = 0;
      convert(DType::kFloat64, &value, finished.dtype, from, 1, 1.0);
      const double expected = combined(layout, finished.in_order, ranks_, i, iteration);
      if (value == expected) continue;
      return "rank " + std::to_string(transport_->rank()) + " bucket " + std::to_string(bucket) +
             " (" + std::string(to_string(layout.dtype)) + " " + std::string(to_string(layout.op)) +
             ") iteration " + std::to_string(iteration) + " element " + std::to_string(i) + ": " +
             std::to_string(value) + " and not " + std::to_string(expected);
    }
    return {};
  }

 private:
  struct Bucket {
    BucketLayout layout;
    bool in_order = false;
    DType dtype = DType::kFloat32;              // of the tensors
    std::byte* data = nullptr;                  // of one in place
    std::shared_ptr<UserTensors> tensors = {};  // of one that is not

    std::byte* element(std::size_t index) const {
      return tensors ? tensors->element(index) : data + index * size_of(dtype);
    }
    std::byte* input(std::size_t index) const {
      return tensors ? tensors->input(index) : element(index);
    }
  };

  bool holds_contribution(const Bucket& bucket, std::size_t i, std::uint64_t iteration) const {
    const double value = contribution(bucket.in_order, transport_->rank(), i, iteration);
    std::array<std::byte, 8> expected{};
    convert(bucket.dtype, expected.data(), DType::kFloat64, &value, 1, 1.0);
    return std::equal(bucket.input(i), bucket.input(i) + size_of(bucket.dtype), expected.data());
  }

  int ranks_;
  std::unique_ptr<Transport> transport_;
  ReduceTeam team_;
  Executor executor_;
  std::uint32_t next_flag_ = 0;
  std::size_t arena_end_ = 0;
  std::vector<Bucket> buckets_;
};

std::vector<std::unique_ptr<Rank>> make_ranks(InProcessHub& hub, int helpers = 0) {
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int rank = 0; rank < hub.grid().world_size(); ++rank) {
    ranks.push_back(std::make_unique<Rank>(hub, rank, helpers));
  }
  return ranks;
}

/// All dtypes, operations and placements. 16-bit sums are left to algorithms that round once.
std::vector<BucketLayout> all_layouts(const Job& job) {
  const bool rounds_once = sums_in_order(job.algorithm) || job.algorithm.ends_with("direct");
  std::vector<BucketLayout> layouts;
  for (DType dtype : kAllDTypes) {
    for (ReduceOp op : kAllReduceOps) {
      const bool rounds = op != ReduceOp::kMin && op != ReduceOp::kMax;
      if (is_16bit_float(dtype) && rounds && !rounds_once) continue;
      for (Placement placement : {Placement::kInPlace, Placement::kStaged, Placement::kUser}) {
        const bool out_of_place = placement != Placement::kInPlace && layouts.size() % 2 == 1;
        layouts.push_back({.count = 131 + layouts.size(),
                           .dtype = dtype,
                           .op = op,
                           .placement = placement,
                           .out_of_place = out_of_place});
      }
    }
  }
  return layouts;
}

class ExecutorJobs : public testing::TestWithParam<Job> {
 protected:
  static constexpr std::uint64_t kIterations = 3;

  CompileOptions options() const {
    return {.algorithm = GetParam().algorithm, .chunk_bytes = 256, .window = 2};
  }

  void expect_exact_for_any_interleaving(const std::vector<BucketLayout>& layouts,
                                         std::uint64_t seed) const;
};

// Ranks wait for nobody: each starts the next iteration of a bucket some time after it has finished
// the last, while others are behind or ahead.
void ExecutorJobs::expect_exact_for_any_interleaving(const std::vector<BucketLayout>& layouts,
                                                     std::uint64_t seed) const {
  SCOPED_TRACE(text(GetParam()) + " seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  InProcessHub hub(ProcessGrid::with_node_sizes(GetParam().nodes));
  const auto ranks = make_ranks(hub);
  std::vector<std::pair<std::size_t, BucketId>> starts;  // (rank, bucket), not started yet
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    for (BucketId bucket = 0; bucket < layouts.size(); ++bucket) {
      starts.emplace_back(rank, bucket);
      ranks[rank]->add(layouts[bucket], hub.grid(), options());
    }
  }
  std::vector<std::vector<std::uint64_t>> iterations(ranks.size());  // by rank and bucket
  for (auto& of_rank : iterations) of_rank.resize(layouts.size());
  std::size_t unfinished = ranks.size() * layouts.size();
  for (std::size_t steps = 0; unfinished > 0; ++steps) {
    ASSERT_LT(steps, 1'000'000u);
    if (!starts.empty() && random() % 2 == 0) {
      std::swap(starts[random() % starts.size()], starts.back());
      const auto [rank, bucket] = starts.back();
      starts.pop_back();
      ranks[rank]->start(bucket, iterations[rank][bucket]);
    }
    const std::size_t polled = random() % ranks.size();
    Rank& rank = *ranks[polled];
    rank.transport().poll();
    rank.executor().poll();
    for (BucketId bucket : rank.executor().take_finished()) {
      std::uint64_t& iteration = iterations[polled][bucket];
      ASSERT_EQ(rank.wrong(bucket, iteration), "");
      if (++iteration < kIterations) {
        starts.emplace_back(polled, bucket);
      } else {
        --unfinished;
      }
    }
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    EXPECT_FALSE(ranks[rank]->executor().busy());
    EXPECT_EQ(ranks[rank]->transport().failure(), std::nullopt);
    for (BucketId bucket = 0; bucket < layouts.size(); ++bucket) {
      EXPECT_EQ(ranks[rank]->wrong(bucket, kIterations - 1), "");
    }
  }
}

TEST_P(ExecutorJobs, SumExactlyWithAllBucketsInFlightForAnyInterleaving) {
  for (std::uint64_t seed = 0; seed < 2; ++seed) {
    expect_exact_for_any_interleaving(all_layouts(GetParam()), seed);
  }
}

// Less than an element for each rank, one more or less than that, primes, and parts that are cut.
TEST_P(ExecutorJobs, SumAnyCountExactlyForAnyInterleaving) {
  const auto ranks = static_cast<std::size_t>(
      std::accumulate(GetParam().nodes.begin(), GetParam().nodes.end(), 0));
  std::vector<BucketLayout> layouts;
  for (const std::size_t count : std::initializer_list<std::size_t>{
           0, 1, ranks - 1, ranks, ranks + 1, 251, 16 * ranks, 16 * ranks + 1, 2003}) {
    for (Placement placement : {Placement::kInPlace, Placement::kStaged, Placement::kUser}) {
      const bool out_of_place = placement != Placement::kInPlace && layouts.size() % 2 == 1;
      layouts.push_back({.count = count,
                         .op = ReduceOp::kAverage,
                         .placement = placement,
                         .out_of_place = out_of_place});
    }
  }
  for (std::uint64_t seed = 10; seed < 14; ++seed) {
    expect_exact_for_any_interleaving(layouts, seed);
  }
}

TEST_P(ExecutorJobs, SumExactlyWithAThreadPerRank) {
  const std::vector<BucketLayout> layouts = all_layouts(GetParam());
  InProcessHub hub(ProcessGrid::with_node_sizes(GetParam().nodes));
  std::atomic<int> done{0};
  test::run_ranks(hub.grid().world_size(), [&](const test::RankRun& run) {
    Rank rank(hub, run.rank());
    for (const BucketLayout& layout : layouts) rank.add(layout, hub.grid(), options());
    for (std::uint64_t iteration = 0; iteration < kIterations; ++iteration) {
      for (BucketId bucket = 0; bucket < layouts.size(); ++bucket) rank.start(bucket, iteration);
      std::size_t finished = 0;
      run.poll_until(
          [&] {
            bool moved = rank.transport().poll();
            moved |= rank.executor().poll();
            finished += rank.executor().take_finished().size();
            return moved;
          },
          [&] { return finished == layouts.size(); });
      for (BucketId bucket = 0; bucket < layouts.size(); ++bucket) {
        const std::string wrong = rank.wrong(bucket, iteration);
        if (!wrong.empty()) throw std::runtime_error(wrong);
      }
    }
    // A transport that ends cancels what is still on its way to others.
    ++done;
    run.poll_until([&] { return rank.transport().poll(); },
                   [&] { return done == run.world_size(); });
    rank.transport().shutdown(true);
  });
}

INSTANTIATE_TEST_SUITE_P(Jobs, ExecutorJobs,
                         testing::Values(Job{{1}, "direct"}, Job{{4}, "direct"}, Job{{4}, "ring"},
                                         Job{{1}, "flat"}, Job{{2}, "flat"}, Job{{5}, "flat"},
                                         Job{{1, 1, 1}, "flat"}, Job{{2, 3}, "flat"},
                                         Job{{2}, "direct"}, Job{{4}, "hierarchical:direct,direct"},
                                         Job{{1, 1, 1, 1}, "direct"}, Job{{1, 1, 1, 1}, "ring"},
                                         Job{{1, 1, 1, 1}, "halving_doubling"}, Job{{1, 1}, "tree"},
                                         Job{{2, 2}, "hierarchical:direct,direct"},
                                         Job{{2, 2}, "hierarchical:direct,ring"},
                                         Job{{3, 1}, "hierarchical:direct,direct"}));

// One node: no message is sent, so what is counted is the executor's alone.
class ExecutorMemory : public testing::TestWithParam<Job> {};
INSTANTIATE_TEST_SUITE_P(Jobs, ExecutorMemory,
                         testing::Values(Job{{2}, "direct"}, Job{{3}, "flat"}));

TEST_P(ExecutorMemory, IsNotAllocatedInSteadyState) {
  const Job job = GetParam();
  InProcessHub hub(ProcessGrid::with_node_sizes(job.nodes));
  const auto ranks = make_ranks(hub);
  const std::vector<BucketLayout> layouts = all_layouts(job);
  for (const auto& rank : ranks) {
    for (const BucketLayout& layout : layouts) {
      rank->add(layout, hub.grid(), {.algorithm = job.algorithm, .chunk_bytes = 256});
    }
  }
  std::vector<int> awaited;
  const auto iterate = [&](std::uint64_t iteration) {
    for (const auto& rank : ranks) {
      for (BucketId bucket = 0; bucket < layouts.size(); ++bucket) rank->start(bucket, iteration);
    }
    for (std::size_t finished = 0; finished < ranks.size() * layouts.size();) {
      for (const auto& rank : ranks) {
        rank->transport().poll();
        rank->executor().poll();
        awaited.clear();
        rank->executor().append_awaited_peers(awaited);
        finished += rank->executor().take_finished().size();
      }
    }
  };
  iterate(0);  // Warms up: buffers reach their size.
  iterate(1);
  const test::AllocationCounter allocations;
  iterate(2);
  iterate(3);
  EXPECT_EQ(allocations.calls(), 0u);
  for (const auto& rank : ranks) {
    for (BucketId bucket = 0; bucket < layouts.size(); ++bucket) {
      EXPECT_EQ(rank->wrong(bucket, 3), "");
    }
  }
}

/// Runs one iteration of all buckets of all ranks, in one thread and its helpers.
void run_iteration(const std::vector<std::unique_ptr<Rank>>& ranks, std::size_t buckets,
                   std::uint64_t iteration) {
  for (const auto& rank : ranks) {
    for (BucketId bucket = 0; bucket < buckets; ++bucket) rank->start(bucket, iteration);
  }
  for (std::size_t finished = 0; finished < ranks.size() * buckets;) {
    for (const auto& rank : ranks) {
      rank->transport().poll();
      rank->executor().poll();
      finished += rank->executor().take_finished().size();
    }
  }
}

/// Buckets whose kernels are cut.
std::vector<BucketLayout> large_layouts() {
  std::vector<BucketLayout> layouts;
  for (Placement placement : {Placement::kInPlace, Placement::kStaged, Placement::kUser}) {
    layouts.push_back({.count = 150'007, .placement = placement});
  }
  layouts.push_back({.count = 150'007, .placement = Placement::kUser, .out_of_place = true});
  return layouts;
}

TEST(Executor, GivesTheSameBytesWithHelpers) {
  const std::vector<BucketLayout> layouts = large_layouts();
  for (const Job& job : {Job{{3}, "direct"}, Job{{1, 1}, "ring"}, Job{{2, 1}, "flat"},
                         Job{{2, 2}, "hierarchical:direct,direct"}}) {
    std::vector<std::vector<std::byte>> alone;
    for (const int helpers : {0, 1, 3}) {
      SCOPED_TRACE(text(job) + " with " + std::to_string(helpers) + " helpers");
      InProcessHub hub(ProcessGrid::with_node_sizes(job.nodes),
                       {.arena_bytes = std::size_t{32} << 20});
      const auto ranks = make_ranks(hub, helpers);
      for (const auto& rank : ranks) {
        for (const BucketLayout& layout : layouts) {
          rank->add(layout, hub.grid(), {.algorithm = job.algorithm});
        }
      }
      run_iteration(ranks, layouts.size(), 0);
      for (BucketId bucket = 0; bucket < layouts.size(); ++bucket) {
        if (helpers == 0) alone.push_back(ranks[0]->result(bucket));
        for (const auto& rank : ranks) {
          // Not EXPECT_EQ, which would print megabytes.
          EXPECT_TRUE(rank->result(bucket) == alone[bucket]) << "bucket " << bucket;
        }
      }
    }
  }
}

TEST(Executor, AllocatesNothingWithHelpers) {
  InProcessHub hub(ProcessGrid::with_node_sizes({2}), {.arena_bytes = std::size_t{32} << 20});
  const auto ranks = make_ranks(hub, 2);
  const std::vector<BucketLayout> layouts = large_layouts();
  for (const auto& rank : ranks) {
    for (const BucketLayout& layout : layouts) {
      rank->add(layout, hub.grid(), {.algorithm = "direct"});
    }
  }
  run_iteration(ranks, layouts.size(), 0);
  const test::AllocationCounter allocations;
  run_iteration(ranks, layouts.size(), 1);
  EXPECT_EQ(allocations.calls(), 0u);
}

// 5 MiB are several parts of a kernel for each rank.
TEST(Executor, PollsBetweenThePartsOfALongKernel) {
  constexpr TransportLimits kLimits{.arena_bytes = std::size_t{32} << 20};
  InProcessHub hub(ProcessGrid::with_node_sizes({2}), kLimits);
  const auto ranks = make_ranks(hub);
  for (const auto& rank : ranks) {
    rank->add({.count = std::size_t{5} << 18}, hub.grid(), {.algorithm = "direct"});
    rank->start(0, 0);
  }
  int polls = 0;
  for (std::size_t finished = 0; finished < ranks.size(); ++polls) {
    ASSERT_LT(polls, 100);
    for (const auto& rank : ranks) {
      rank->transport().poll();
      rank->executor().poll();
      finished += rank->executor().take_finished().size();
    }
  }
  EXPECT_GE(polls, 3);
  for (const auto& rank : ranks) EXPECT_EQ(rank->wrong(0, 0), "");
}

// The other ranks go on with other buckets, and the memory of the abandoned one stays.
TEST(Executor, AbandonForgetsOneBucketForGood) {
  for (const Job& job : {Job{{3}, "direct"}, Job{{3}, "flat"}, Job{{1, 1, 1}, "ring"}}) {
    for (int steps = 0; steps < 6; ++steps) {
      SCOPED_TRACE(text(job) + " after " + std::to_string(steps) + " steps");
      InProcessHub hub(ProcessGrid::with_node_sizes(job.nodes));
      const auto ranks = make_ranks(hub);
      for (const auto& rank : ranks) {
        for (BucketId bucket = 0; bucket < 2; ++bucket) {
          rank->add({.count = 200, .placement = Placement::kUser}, hub.grid(),
                    {.algorithm = job.algorithm, .chunk_bytes = 256});
        }
      }
      for (std::size_t r = 0; r < 2; ++r) ranks[r]->start(0, 0);  // Rank 2 never comes.
      for (int step = 0; step < steps; ++step) {
        for (const auto& rank : ranks) {
          rank->transport().poll();
          rank->executor().poll();
        }
      }
      for (std::size_t r = 0; r < 2; ++r) {
        ranks[r]->executor().abandon(0);
        EXPECT_FALSE(ranks[r]->executor().busy());
        EXPECT_THROW(ranks[r]->executor().start(0, 1), KoloError);
        EXPECT_THROW(ranks[r]->executor().abandon(0), KoloError);
        // Messages on their way may still touch its memory. That peers of the node no longer do is
        // for the caller to know.
        if (job.nodes.size() > 1) {
          EXPECT_THROW(ranks[r]->executor().remove(0), KoloError);
        } else {
          EXPECT_NO_THROW(ranks[r]->executor().remove(0));
        }
      }
      std::size_t finished = 0;
      for (const auto& rank : ranks) rank->start(1, 0);
      for (int polls = 0; finished < ranks.size(); ++polls) {
        ASSERT_LT(polls, 1000);
        for (const auto& rank : ranks) {
          rank->transport().poll();
          rank->executor().poll();
          for (BucketId bucket : rank->executor().take_finished()) {
            EXPECT_EQ(bucket, 1u);
            EXPECT_EQ(rank->wrong(1, 0), "");
            ++finished;
          }
        }
      }
      // What the others had sent to rank 2 is no stray.
      for (const auto& rank : ranks) {
        rank->executor().cancel();
        rank->transport().shutdown(true);
        EXPECT_FALSE(rank->transport().failure());
      }
    }
  }
}

TEST(Executor, SaysWhatAndForWhomItWaits) {
  InProcessHub hub(ProcessGrid::with_node_sizes({1, 1}));
  Rank rank(hub, 0);
  EXPECT_EQ(rank.executor().describe_wait(), "nothing");
  rank.add({.count = 100}, hub.grid(), {.algorithm = "ring"});
  rank.start(0, 7);
  for (int i = 0; i < 10; ++i) {
    rank.transport().poll();
    rank.executor().poll();
  }
  EXPECT_TRUE(rank.executor().busy());
  EXPECT_THAT(rank.executor().describe_wait(), AllOf(HasSubstr("bucket 'bucket 0' iteration 7:"),
                                                     HasSubstr("recv"), HasSubstr("from rank 1")));
  std::vector<int> peers;
  rank.executor().append_awaited_peers(peers);
  EXPECT_THAT(peers, AllOf(Contains(1), Each(1)));
}

// After the transport is shut down nothing of a run is touched any more, wherever it was cut.
TEST(Executor, CancelForgetsWhatIsInFlight) {
  for (const Job& job : {Job{{2, 1}, "hierarchical:direct,direct"}, Job{{1, 1, 1}, "ring"}}) {
    for (int steps = 0; steps < 12; ++steps) {
      SCOPED_TRACE(text(job) + " after " + std::to_string(steps) + " steps");
      InProcessHub hub(ProcessGrid::with_node_sizes(job.nodes));
      auto ranks = make_ranks(hub);
      for (const auto& rank : ranks) {
        for (BucketId bucket = 0; bucket < 3; ++bucket) {
          rank->add({.count = 200}, hub.grid(), {.algorithm = job.algorithm, .chunk_bytes = 256});
          rank->start(bucket, 0);
        }
      }
      for (int step = 0; step < steps; ++step) {
        for (const auto& rank : ranks) {
          rank->transport().poll();
          rank->executor().poll();
        }
      }
      Rank& cut = *ranks[0];
      cut.transport().shutdown(false);
      cut.executor().cancel();
      EXPECT_FALSE(cut.executor().busy());
      EXPECT_THAT(cut.executor().take_finished(), IsEmpty());
      EXPECT_FALSE(cut.executor().poll());
      for (BucketId bucket = 0; bucket < 3; ++bucket) cut.executor().remove(bucket);
      ranks.erase(ranks.begin());
      for (const auto& rank : ranks) {
        for (int step = 0; step < 200; ++step) {
          rank->transport().poll();
          rank->executor().poll();
        }
        rank->transport().shutdown(false);
        rank->executor().cancel();
      }
    }
  }
}

// The iteration of a tag wraps: how far the former buckets of a number came decides what is given
// up.
TEST(Executor, WhatPeersSentOfABucketNotYetStartedIsGivenUpFromItsFirstIterationOn) {
  using Counts = std::initializer_list<std::uint64_t>;
  for (const std::uint64_t first : Counts{0, 1, 511, 512, 600, 1023, 1024, 1600}) {
    for (const std::uint64_t done : Counts{0, 1, 3}) {
      SCOPED_TRACE(std::to_string(done) + " iterations from " + std::to_string(first) + " on");
      InProcessHub hub(ProcessGrid::with_node_sizes({1, 1}));
      const auto ranks = make_ranks(hub);
      const auto poll_all = [&] {
        for (const auto& rank : ranks) {
          rank->transport().poll();
          rank->executor().poll();
        }
      };
      for (const auto& rank : ranks) {
        rank->add({.count = 200}, hub.grid(), {.algorithm = "direct"}, first);
      }
      for (std::uint64_t iteration = first; iteration < first + done; ++iteration) {
        for (const auto& rank : ranks) rank->start(0, iteration);
        for (int polls = 0; polls < 10; ++polls) poll_all();
      }
      ranks[0]->start(0, first + done);  // Rank 1 does not come before all close.
      for (int polls = 0; polls < 10; ++polls) poll_all();
      EXPECT_TRUE(ranks[0]->executor().busy());
      EXPECT_FALSE(ranks[1]->executor().busy());
      for (const auto& rank : ranks) rank->executor().cancel();
      for (const auto& rank : ranks) {
        rank->transport().shutdown(true);
        EXPECT_FALSE(rank->transport().failure());
      }
    }
  }
}

TEST(Executor, ABucketIsNeitherStartedTwiceNorRemovedWhileItRuns) {
  InProcessHub hub(ProcessGrid::with_node_sizes({1, 1}));
  Rank rank(hub, 0);
  rank.add({.count = 100}, hub.grid(), {.algorithm = "ring"});
  rank.start(0, 0);
  EXPECT_THROW(rank.executor().start(0, 1), KoloError);
  EXPECT_THROW(rank.executor().remove(0), KoloError);
  EXPECT_TRUE(rank.executor().busy());
}

TEST(Executor, AnEmptyBucketFinishesAtOnce) {
  InProcessHub hub(ProcessGrid::with_node_sizes({1, 1}));
  Rank rank(hub, 0);
  rank.add({.count = 0}, hub.grid(), {.algorithm = "ring"});
  for (std::uint64_t iteration = 0; iteration < 3; ++iteration) {
    rank.start(0, iteration);
    EXPECT_TRUE(rank.executor().poll());
    EXPECT_THAT(rank.executor().take_finished(), ElementsAre(0u));
  }
}

TEST(Executor, RefusesABucketThatTheArenaCannotHold) {
  InProcessHub hub(ProcessGrid::with_node_sizes({1}));
  Rank rank(hub, 0);
  try {
    rank.add({.count = kInProcessLimits.arena_bytes}, hub.grid(), {});
    ADD_FAILURE();
  } catch (const KoloError& e) {
    EXPECT_EQ(e.error().code, ErrorCode::kResources);
  }
}

}  // namespace
}  // namespace kolo
