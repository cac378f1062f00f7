// Tests ranks that run out of data, by engines in one thread with seeded interleavings.

#include <gmock/gmock.h>

#include <numeric>
#include <random>

#include "runtime/calls/operation_calls.h"
#include "tests/runtime/join/joined_job.h"
#include "tests/support/node_shapes.h"

namespace kolo::joined {
namespace {

using test::error_of;
using ::testing::Each;
using ::testing::HasSubstr;

// --- Joining alone -------------------------------------------------------------------------------

TEST(Joining, EndsWithTheLastRank) {
  for (const std::vector<int>& nodes : kShapes) {
    for (unsigned seed = 0; seed < seeds(10); ++seed) {
      SCOPED_TRACE(test::shape_text(nodes) + ", seed " + std::to_string(seed));
      EngineJob job(ProcessGrid::with_node_sizes(nodes), options(), seed);
      std::mt19937 random(seed);
      std::vector<int> order(static_cast<std::size_t>(job.world_size()));
      std::iota(order.begin(), order.end(), 0);
      for (int epoch = 0; epoch < 3; ++epoch) {
        std::ranges::shuffle(order, random);
        std::vector<std::shared_ptr<JoinTicket>> tickets;
        for (const int rank : order) {
          tickets.push_back(join(job, rank));
          job.poll(200);  // the other ranks learn it
        }
        expect_all_joined(job, tickets, std::to_string(order.back()));
      }
      EXPECT_EQ(job.close(), "");
    }
  }
}

// Ranks that join at almost the same time, and again, all name the same last rank.
TEST(Joining, NamesOneLastRankHoweverCloseTheyAre) {
  for (unsigned seed = 0; seed < seeds(50); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    EngineJob job(ProcessGrid::with_node_sizes({2, 1, 2}), options(), seed);
    constexpr int kEpochs = 3;
    std::vector<std::vector<std::string>> last(5);
    std::vector<std::shared_ptr<JoinTicket>> tickets(5);
    for (int rank = 0; rank < 5; ++rank) tickets[static_cast<std::size_t>(rank)] = join(job, rank);
    job.run_until([&] {
      bool is_over = true;
      for (std::size_t rank = 0; rank < tickets.size(); ++rank) {
        if (!tickets[rank]->done()) {
          is_over = false;
        } else if (last[rank].size() < kEpochs) {
          last[rank].push_back(outcome(*tickets[rank]));
          if (last[rank].size() < kEpochs) tickets[rank] = join(job, static_cast<int>(rank));
          is_over = false;
        }
      }
      return is_over;
    });
    EXPECT_THAT(last, Each(last[0]));
  }
}

TEST(Joining, FailsWithTheJob) {
  EngineJob job(ProcessGrid::with_node_sizes({2, 1}), options(), 1);
  const auto ticket = join(job, 0);
  job.poll(100);
  job.engine(2).abort({.code = ErrorCode::kPeerLost, .rank = 2, .peer = 2, .what = "rank 2 left"});
  job.run_until([&] { return ticket->done(); });
  EXPECT_THAT(outcome(*ticket), HasSubstr("rank 2 left"));
  const auto late = join(job, 1);
  job.run_until([&] { return late->done(); }, std::chrono::milliseconds(10));
  EXPECT_THAT(outcome(*late), HasSubstr("rank 2 left"));
}

TEST(Joining, WaitsForOwnOperations) {
  EngineJob job(ProcessGrid::with_node_sizes({2}), options(), 1);
  std::vector<float> mine{1}, other{2};
  const auto operation = job.submit(0, test::all_reduce("x", mine));
  const auto first = join(job, 0);
  const auto second = join(job, 1);
  expect_all_joined(job, {first, second}, "0");
  EXPECT_EQ(error_of(*operation), "");
  EXPECT_EQ(mine, std::vector<float>{1});  // rank 1 had joined
}

// --- Operations of other ranks -------------------------------------------------------------------

/// A kind of operation on small integers, in buffers of one rank.
struct Use {
  enum class Kind {
    kSum,
    kGroupedSum,
    kAverageOutOfPlace,
    kMin,
    kProduct,
    kBits,
    kBools,
    kComplex,
    kPremultiplied,
    kReduce,
    kReduceScatter,
    kBroadcast,
    kBroadcastOutOfPlace,
    kScatter,
    kBarrier
  };
  static constexpr int kKinds = static_cast<int>(Kind::kBarrier) + 1;

  Kind kind;
  std::string name;
  std::size_t count;
  int root;
  int round;
};

double value_of(const Use& use, int rank, std::size_t i) {
  const int value = (rank * 5 + use.round * 3 + static_cast<int>(i % 7)) % 11 + 1;
  if (use.kind == Use::Kind::kBools) return value % 3 == 0 ? 0 : 1;
  return use.kind == Use::Kind::kProduct ? value % 3 + 1 : value;
}

template <typename T>
class Buffers {
 public:
  Buffers(const Use& use, int rank, int ranks) : use_(use), rank_(rank), ranks_(ranks) {
    using Kind = Use::Kind;
    const std::size_t width = use.kind == Kind::kComplex ? 2 : 1;
    const bool has_parts = use.kind == Kind::kReduceScatter || use.kind == Kind::kScatter;
    input_.resize(use.count * width * (has_parts ? static_cast<std::size_t>(ranks) : 1));
    for (std::size_t i = 0; i < input_.size(); ++i) {
      input_[i] = static_cast<T>(value_of(use, rank, i));
    }
    result_ = is_in_place() ? input_ : std::vector<T>(use.count * width, T{99});
  }

  Operation operation(DType dtype) {
    using Kind = Use::Kind;
    Operation operation{.kind = OperationKind::kAllReduce,
                        .name = use_.name,
                        .dtype = dtype,
                        .tensors = {{.result = result_.data(), .count = use_.count}}};
    if (!is_in_place()) {
      operation.tensors[0].input = input_.data();
      operation.out_of_place = true;
    }
    switch (use_.kind) {
      case Kind::kGroupedSum: {
        const std::size_t first = use_.count / 3;
        operation.tensors = {{.result = result_.data(), .count = first},
                             {.result = result_.data() + first, .count = use_.count - first}};
        break;
      }
      case Kind::kAverageOutOfPlace:
        operation.op = ReduceOp::kAverage;
        break;
      case Kind::kMin:
        operation.op = ReduceOp::kMin;
        break;
      case Kind::kProduct:
        operation.op = ReduceOp::kProd;
        break;
      case Kind::kBits:
      case Kind::kBools:
        operation.op = ReduceOp::kBitAnd;
        break;
      case Kind::kPremultiplied:
        operation.op = ReduceOp::kPremulSum;
        operation.scales.before = rank_ + 1;
        break;
      case Kind::kReduce:
        operation.kind = OperationKind::kReduce;
        operation.root = use_.root;
        break;
      case Kind::kReduceScatter:
        operation.kind = OperationKind::kReduceScatter;
        break;
      case Kind::kBroadcast:
      case Kind::kBroadcastOutOfPlace:
        operation.kind = OperationKind::kBroadcast;
        operation.root = use_.root;
        break;
      case Kind::kScatter:
        operation.kind = OperationKind::kScatter;
        operation.root = use_.root;
        break;
      case Kind::kBarrier:
        return {.kind = OperationKind::kBarrier, .name = use_.name};
      default:
        break;
    }
    return operation;
  }

  /// Returns element i of this rank's result if only the `active` ranks have data.
  double expected(std::size_t i, const std::vector<int>& active) const {
    using Kind = Use::Kind;
    const std::size_t own = use_.count * static_cast<std::size_t>(rank_) + i;
    if (use_.kind == Kind::kBroadcast || use_.kind == Kind::kBroadcastOutOfPlace) {
      return value_of(use_, use_.root, i);
    }
    if (use_.kind == Kind::kScatter) return value_of(use_, use_.root, own);
    if (use_.kind == Kind::kReduce && rank_ != use_.root) return 99;
    if (use_.kind == Kind::kBarrier) return static_cast<double>(result_[i]);
    const std::size_t at = use_.kind == Kind::kReduceScatter ? own : i;
    double all = value_of(use_, active.front(), at);
    if (use_.kind == Kind::kPremultiplied) all *= active.front() + 1;
    for (std::size_t k = 1; k < active.size(); ++k) {
      const double each = value_of(use_, active[k], at);
      switch (use_.kind) {
        case Kind::kMin:
          all = std::min(all, each);
          break;
        case Kind::kProduct:
          all *= each;
          break;
        case Kind::kBits:
        case Kind::kBools:
          all = static_cast<int>(all) & static_cast<int>(each);
          break;
        case Kind::kPremultiplied:
          all += (active[k] + 1) * each;
          break;
        default:
          all += each;
      }
    }
    return use_.kind == Kind::kAverageOutOfPlace ? all / ranks_ : all;
  }

  void check(const std::vector<int>& active) const {
    for (std::size_t i = 0; i < result_.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(result_[i]), expected(i, active), 1e-5)
          << use_.name << " of round " << use_.round << " at rank " << rank_ << ", element " << i;
    }
  }

 private:
  bool is_in_place() const {
    using Kind = Use::Kind;
    return use_.kind != Kind::kAverageOutOfPlace && use_.kind != Kind::kReduce &&
           use_.kind != Kind::kReduceScatter && use_.kind != Kind::kBroadcastOutOfPlace &&
           use_.kind != Kind::kScatter;
  }

  const Use use_;
  const int rank_, ranks_;
  std::vector<T> input_, result_;
};

/// One rank's call and buffers in a use.
class Part {
 public:
  Part(EngineJob& job, int rank, const Use& use) { begin(job, rank, use); }

  bool done() const { return operation_->ticket->done(); }
  void check(const std::vector<int>& active) const {
    ASSERT_EQ(error_of(*operation_), "");
    check_(active);
  }

 private:
  void begin(EngineJob& job, int rank, const Use& use) {
    switch (use.kind) {
      case Use::Kind::kBits:
        return begin<std::int32_t>(job, rank, use, DType::kInt32);
      case Use::Kind::kBools:
        return begin<std::uint8_t>(job, rank, use, DType::kBool);
      case Use::Kind::kComplex:
        return begin<float>(job, rank, use, DType::kComplex64);
      case Use::Kind::kPremultiplied:
        return begin<double>(job, rank, use, DType::kFloat64);
      default:
        return begin<float>(job, rank, use, DType::kFloat32);
    }
  }

  template <typename T>
  void begin(EngineJob& job, int rank, const Use& use, DType dtype) {
    auto buffers = std::make_shared<Buffers<T>>(use, rank, job.world_size());
    operation_ = job.submit(rank, buffers->operation(dtype));
    check_ = [buffers](const std::vector<int>& active) { buffers->check(active); };
  }

  std::shared_ptr<Operation> operation_;
  std::function<void(const std::vector<int>&)> check_;
};

/// Ranks have data for different numbers of rounds. In each round a rank begins several operations
/// at the same time, in its own order. Names are used again. Some are new after others have joined,
/// and some change their length then.
class UnevenRounds {
 public:
  UnevenRounds(const std::vector<int>& nodes, unsigned seed, MemoryKind memory)
      : job_(ProcessGrid::with_node_sizes(nodes), options(), seed, test::devices_for(memory)),
        random_(seed),
        ranks_(static_cast<std::size_t>(job_.world_size())) {
    for (Rank& rank : ranks_) rank.rounds = static_cast<int>(random_() % 6);
    longest_ = static_cast<int>(random_() % ranks_.size());
    ranks_[static_cast<std::size_t>(longest_)].rounds = 6;
  }

  void run() {
    job_.run_until([&] {
      bool is_over = true;
      for (int rank = 0; rank < job_.world_size(); ++rank) is_over &= move(rank);
      return is_over;
    });
    for (const Rank& rank : ranks_) EXPECT_EQ(outcome(*rank.ticket), outcome(*ranks_[0].ticket));
    // All ranks have data again.
    for (Rank& rank : ranks_) rank = {.rounds = 8, .round = 7};
    job_.run_until([&] {
      bool is_over = true;
      for (int rank = 0; rank < job_.world_size(); ++rank) is_over &= move(rank);
      return is_over;
    });
    EXPECT_EQ(job_.close(), "");
  }

 private:
  struct Rank {
    int rounds = 0;
    int round = 0;
    std::vector<Part> parts = {};
    std::shared_ptr<JoinTicket> ticket = {};
  };

  std::vector<int> active(int round) const {
    std::vector<int> active;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (ranks_[rank].rounds > round) active.push_back(static_cast<int>(rank));
    }
    return active;
  }

  std::vector<Use> uses(int round) const {
    std::vector<Use> uses;
    for (int kind = 0; kind < Use::kKinds; ++kind) {
      const bool changes = kind % 2 == 0;
      uses.push_back({.kind = static_cast<Use::Kind>(kind),
                      .name = "use " + std::to_string(kind),
                      .count = 10 + static_cast<std::size_t>(changes ? round / 2 : 0),
                      .root = longest_,
                      .round = round});
    }
    uses.push_back({.kind = Use::Kind::kSum,
                    .name = "new in " + std::to_string(round),
                    .count = 300,
                    .root = 0,
                    .round = round});
    return uses;
  }

  /// Lets a rank continue. Returns whether it has returned from its join.
  bool move(int number) {
    Rank& rank = ranks_[static_cast<std::size_t>(number)];
    if (rank.ticket) return rank.ticket->done();
    if (!std::ranges::all_of(rank.parts, [](const Part& part) { return part.done(); })) {
      return false;
    }
    job_.bring_back();
    for (const Part& part : rank.parts) part.check(active(rank.round - 1));
    rank.parts.clear();
    if (rank.round == rank.rounds) {
      rank.ticket = join(job_, number);
      return false;
    }
    std::vector<Use> uses = this->uses(rank.round++);
    std::ranges::shuffle(uses, random_);
    for (const Use& use : uses) rank.parts.emplace_back(job_, number, use);
    return false;
  }

  EngineJob job_;
  std::mt19937 random_;
  std::vector<Rank> ranks_;
  int longest_;
};

TEST(Joining, TakesPartInOperationsOfOthers) {
  for (const MemoryKind memory : {MemoryKind::kHost, MemoryKind::kDevice}) {
    for (const std::vector<int>& nodes : kShapes) {
      for (unsigned seed = 0; seed < seeds(6); ++seed) {
        SCOPED_TRACE(test::shape_text(nodes) + ", seed " + std::to_string(seed) + ", " +
                     std::string(to_string(memory)));
        UnevenRounds(nodes, seed, memory).run();
        if (HasFatalFailure()) return;
      }
    }
  }
}

// --- Grouped -------------------------------------------------------------------------------------

TEST(JoinedRanks, CountInGroupedOperationsWithUnevenParts) {
  EngineJob job(ProcessGrid::with_node_sizes({2, 1}), options(), 1);
  const auto ticket = join(job, 2);
  job.poll(200);
  const std::vector<std::size_t> first{3, 0, 1}, second{1, 2, 2};
  std::vector<float> inputs[2], results[2];
  std::vector<std::shared_ptr<Operation>> operations;
  for (int rank = 0; rank < 2; ++rank) {
    inputs[rank] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    results[rank].resize(rank == 0 ? 4 : 2);
    const std::span<float> input(inputs[rank]), result(results[rank]);
    const std::size_t of_first = rank == 0 ? 3 : 0;
    const Tensor tensors[] = {{input.first(4), result.first(of_first), first},
                              {input.subspan(4), result.subspan(of_first), second}};
    OperationPool pool;
    operations.push_back(job.submit(
        rank, *OperationCalls(pool, rank, 3).make(OperationKind::kReduceScatter, "x", tensors)));
  }
  job.finish(operations);
  for (const auto& operation : operations) EXPECT_EQ(error_of(*operation), "");
  EXPECT_EQ(results[0], std::vector<float>({2, 4, 6, 10}));
  EXPECT_EQ(results[1], std::vector<float>({12, 14}));
  const auto others = {join(job, 0), join(job, 1)};
  expect_all_joined(job, {ticket, *others.begin(), *std::prev(others.end())}, "1");
}

}  // namespace
}  // namespace kolo::joined
