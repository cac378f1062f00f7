// Tests exceptions anywhere in an engine. All ranks get one error, and no thread waits forever.

#include <gmock/gmock.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "compression/compression_spec.h"
#include "runtime/api/in_flight.h"
#include "runtime/gradients/gradient_compression.h"
#include "runtime/wait/progress_engine.h"
#include "tests/support/allocations.h"
#include "tests/support/engine_job.h"
#include "tests/support/group_job.h"
#include "tests/support/lone_engine.h"
#include "tests/support/message_calls.h"
#include "tests/support/rank_harness.h"
#include "tests/support/sanitized.h"
#include "tests/support/throwing_transport.h"

namespace kolo {
namespace {

using test::AllocationFault;
using test::CallFault;
using test::EngineJob;
using test::error_of;
using test::ThrowingTransport;
using testing::AllOf;
using testing::AnyOf;
using testing::Each;
using testing::HasSubstr;

constexpr Duration kTick = std::chrono::milliseconds(10);
/// The rank on which a call or allocation throws.
constexpr int kFaulty = 1;

/// Returns a sparse gradient, a dense one, and one on a 16-bit wire.
std::vector<GradientSpec> model() {
  std::vector<GradientSpec> gradients{{.name = "sparse", .shape = {65, 64}},
                                      {.name = "bias", .shape = {65}},
                                      {.name = "wire", .shape = {40, 30}}};
  resolve_compression(gradients, CompressionRules::parse("sparse=topk(0.05),wire=fp16"));
  return gradients;
}

/// A program on each rank of a job: operations of all kinds, messages of all sizes, and iterations
/// of a gradient set. It continues after errors.
class Program {
 public:
  explicit Program(EngineJob& job) : job_(job) {}

  void run() {
    buffers_.assign(ranks(), std::vector<float>(300, 1.0F));
    for (const OperationKind kind :
         {OperationKind::kAllReduce, OperationKind::kBroadcast, OperationKind::kBarrier}) {
      for (std::size_t rank = 0; rank < ranks(); ++rank) {
        Operation operation{.kind = kind, .name = "x" + std::to_string(static_cast<int>(kind))};
        if (kind != OperationKind::kBarrier)
          operation.tensors = test::in_place(test::view(buffers_[rank]));
        operations_.push_back(job_.submit(static_cast<int>(rank), std::move(operation)));
      }
    }
    for (auto& data : messages_) {
      for (int rank = 0; rank < job_.world_size(); ++rank) {
        const int next = (rank + 1) % job_.world_size();
        calls_.push_back(test::send(job_, rank, next, data, data.size()));
        calls_.push_back(test::receive(job_, rank, kAnyRank, data, data.size()));
      }
    }
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      groups_.push_back(std::make_shared<GradientSetState>("model", model(), GradientOptions{}));
      job_.engine(static_cast<int>(rank)).submit(groups_.back());
    }
    job_.run_until_idle(kTick);
    for (int iteration = 0; iteration < 2; ++iteration) {
      for (std::size_t rank = 0; rank < ranks(); ++rank) mark_all(static_cast<int>(rank));
      job_.run_until_idle(kTick);
      for (const auto& set : groups_) wait(*set);
    }
  }

  /// Returns the error that ended the job on each rank; empty if the job continues.
  std::vector<std::string> failures() {
    std::vector<std::shared_ptr<Operation>> late;
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      late.push_back(
          job_.submit(static_cast<int>(rank), {.kind = OperationKind::kBarrier, .name = "late"}));
    }
    job_.run_until_idle(kTick);
    std::vector<std::string> errors;
    for (const auto& operation : late) errors.push_back(error_of(*operation));
    return errors;
  }

  bool everything_is_answered() const {
    return std::ranges::all_of(operations_, [](const auto& o) { return o->ticket->done(); }) &&
           std::ranges::all_of(groups_, [](const auto& g) { return g->registration().done(); }) &&
           test::are_over(calls_);
  }

 private:
  std::size_t ranks() const { return static_cast<std::size_t>(job_.world_size()); }

  void mark_all(int rank) {
    GradientSetState& set = *groups_[static_cast<std::size_t>(rank)];
    for (std::size_t gradient = 0; !set.failed() && gradient < set.gradients().size(); ++gradient) {
      const BufferView view = set.view(gradient);
      std::fill_n(static_cast<float*>(view.data), view.count, static_cast<float>(rank + 1));
      test::mark(job_.engine(rank), set, gradient);
    }
  }

  static void wait(GradientSetState& set) {
    try {
      EXPECT_TRUE(set.iterations().wait(std::chrono::milliseconds(1)));
    } catch (const KoloError&) {
    }
  }

  EngineJob& job_;
  std::vector<std::vector<float>> buffers_;
  std::vector<std::vector<float>> messages_{std::vector<float>(3), std::vector<float>(2000),
                                            std::vector<float>(100'000)};
  test::CalledMessages calls_;
  std::vector<std::shared_ptr<Operation>> operations_;
  std::vector<std::shared_ptr<GradientSetState>> groups_;
};

struct Outcome {
  std::size_t points = 0;  // calls or allocations that were passed
  bool has_thrown = false;
  std::vector<std::string> failures = {};
};

/// Returns options with many chunks, with which all contributions are exposed.
Options options() {
  return {.link_costs = "memory_latency_us=0,private_read_us=0", .chunk_bytes = 512};
}

/// Runs the program with a fault in one call of a transport.
Outcome run_with_call_fault(const std::vector<int>& nodes, std::size_t at) {
  CallFault fault(at);
  EngineJob job(
      ProcessGrid::with_node_sizes(nodes), options(), at, std::nullopt,
      {.opens_memory = true, .transport = [&](int rank, std::unique_ptr<Transport> transport) {
         if (rank == kFaulty) {
           transport = std::make_unique<ThrowingTransport>(std::move(transport), fault);
         }
         return transport;
       }});
  Program program(job);
  program.run();
  fault.end();
  EXPECT_TRUE(program.everything_is_answered()) << "call " << at;
  Outcome outcome{.points = fault.calls(), .has_thrown = fault.has_thrown()};
  outcome.failures = program.failures();
  return outcome;
}

/// Runs the program with a fault in one allocation within `poll`.
Outcome run_with_allocation_fault(const std::vector<int>& nodes, std::size_t at) {
  std::size_t left = at;
  EngineJob job(ProcessGrid::with_node_sizes(nodes), options(), at, std::nullopt,
                {.poll = [&](int rank, Engine& engine) {
                  if (rank != kFaulty) return engine.poll();
                  const AllocationFault fault(left);
                  return engine.poll();
                }});
  Program program(job);
  program.run();
  EXPECT_TRUE(program.everything_is_answered()) << "request " << at;
  Outcome outcome{.points = at - left, .has_thrown = left == 0};
  left = 0;
  outcome.failures = program.failures();
  return outcome;
}

class EngineExceptions : public testing::TestWithParam<std::vector<int>> {};

TEST_P(EngineExceptions, OfTheTransportAreOneErrorOnAllRanks) {
  const Outcome clean = run_with_call_fault(GetParam(), CallFault::kNever);
  ASSERT_THAT(clean.failures, Each(""));
  for (std::size_t at = 0; at < clean.points; ++at) {
    const Outcome outcome = run_with_call_fault(GetParam(), at);
    if (!outcome.has_thrown) continue;  // this interleaving had fewer calls
    EXPECT_THAT(outcome.failures[0],
                AnyOf(HasSubstr("planned fault"), HasSubstr("an exception of an unknown type")))
        << "call " << at;
    EXPECT_THAT(outcome.failures[0], HasSubstr("rank 1")) << "call " << at;
    EXPECT_THAT(outcome.failures, Each(outcome.failures[0])) << "call " << at;
  }
}

TEST_P(EngineExceptions, ForWantOfMemoryAreOneErrorOnAllRanks) {
  constexpr std::size_t kNever = std::size_t{1} << 40;
  const Outcome clean = run_with_allocation_fault(GetParam(), kNever);
  ASSERT_THAT(clean.failures, Each(""));
  for (std::size_t at = 1; at < clean.points; at += test::kSanitized ? 7 : 3) {
    const Outcome outcome = run_with_allocation_fault(GetParam(), at);
    if (!outcome.has_thrown) continue;
    EXPECT_THAT(outcome.failures[0], HasSubstr("out of memory")) << "request " << at;
    EXPECT_THAT(outcome.failures[0], HasSubstr("rank 1")) << "request " << at;
    EXPECT_THAT(outcome.failures, Each(outcome.failures[0])) << "request " << at;
  }
}

// If a request fails, every rank that creates the group gets an error or the group.
TEST(EngineException, InTheCreationOfAGroupIsAnswered) {
  bool has_thrown = true;
  for (std::size_t at = 1; has_thrown; at += test::kSanitized ? 7 : 3) {
    SCOPED_TRACE("request " + std::to_string(at));
    std::size_t left = at;
    test::GroupJob job(ProcessGrid::with_node_sizes({2}), at);
    job.poll_with([&](int rank, Engines& engines) {
      if (rank != kFaulty) return engines.poll();
      const AllocationFault fault(left);
      return engines.poll();
    });
    const std::vector creations{job.create(0, {0, 1}), job.create(1, {0, 1})};
    job.run_until([&] { return creations[0]->ticket.done() && creations[1]->ticket.done(); },
                  kTick);
    has_thrown = left == 0;
  }
}

/// A ticket whose operation fails as a wait for it times out.
class LateError final : public TicketState {
 public:
  std::string subject() const override {
    self_->fail({.code = ErrorCode::kPeerLost, .what = "too late for the wait"});
    return {};
  }

 private:
  LateError* const self_ = this;
};

TEST(EngineException, ThatComesAsAWaitTimesOutIsLogged) {
  EngineJob job(ProcessGrid::with_node_sizes({2}), {}, 1);
  test::LoneEngine lone(job.engine(0), job.transport(0), job.grid(), {job.clock(), job.clock()});
  const auto progress =
      std::make_shared<ProgressEngine>(lone.engines(), job.transport(0), WaitPolicy{});
  const std::shared_ptr<TicketGroup> group(
      new TicketGroup{.limit = {.time = std::chrono::milliseconds(1)},
                      .progress_engine = progress,
                      .threads = UserThreads(),
                      .leave_job = {}});
  std::vector<float> data(10);
  const auto operation = std::make_shared<Operation>(test::all_reduce("x", data));
  operation->ticket = std::make_shared<LateError>();
  testing::internal::CaptureStderr();
  {
    InFlight call(group, job.engine(0), operation, 1);
    EXPECT_THROW(call.wait(), KoloError);
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("too late for the wait"));
}

// Rank 0 receives a payload that no peer can have sent.
TEST(EngineException, OfACodecIsOneErrorOnAllRanks) {
  CallFault none;
  const auto spoil = [](std::vector<std::byte>& message) {
    constexpr std::uint64_t kTooLong = std::uint64_t{1} << 40;
    std::memcpy(message.data(), &kTooLong, sizeof(kTooLong));
  };
  EngineJob job(ProcessGrid::with_node_sizes({1, 1}), {}, 1, std::nullopt,
                {.transport = [&](int rank, std::unique_ptr<Transport> transport) {
                  if (rank == kFaulty) {
                    transport =
                        std::make_unique<ThrowingTransport>(std::move(transport), none, spoil);
                  }
                  return transport;
                }});
  const auto sets = job.register_sets({model()[0]});
  for (int rank = 0; rank < 2; ++rank) {
    GradientSetState& set = *sets[static_cast<std::size_t>(rank)];
    std::fill_n(static_cast<float*>(set.view(0).data), set.view(0).count, 1.0F);
    test::mark(job.engine(rank), set, 0);
  }
  job.run_until_idle(kTick);
  for (const auto& set : sets) {
    try {
      set->iterations().wait(std::chrono::milliseconds(1));
      ADD_FAILURE() << "took a payload that no peer can have sent";
    } catch (const KoloError& e) {
      EXPECT_EQ(e.error().code, ErrorCode::kInternal);
      EXPECT_THAT(e.what(), AllOf(HasSubstr("rank 0"), HasSubstr("a payload of another plan")));
    }
  }
}

/// One rank of a job whose engine is driven by its own thread and by the waiting thread.
class DrivenRank {
 public:
  DrivenRank(Transport& transport, const ProcessGrid& grid, const WaitPolicy& policy)
      : engine_(transport, grid, {clock_, clock_}, {}, Calibration{}, EngineJob::kLimits),
        lone_(engine_, transport, grid, {clock_, clock_}),
        progress_engine_(lone_.engines(), transport, policy),
        thread_(progress_engine_) {}

  std::shared_ptr<Operation> submit(OperationKind kind, const std::string& name) {
    auto operation = std::make_shared<Operation>(Operation{.kind = kind, .name = name});
    if (kind == OperationKind::kAllReduce) operation->tensors = test::in_place(test::view(buffer_));
    engine_.submit(operation);
    return operation;
  }
  /// Runs the operation. Returns its error, or an empty string.
  std::string run(OperationKind kind, const std::string& name) {
    return error_after([&, operation = submit(kind, name)] {
      operation->ticket->wait_within({.time = std::chrono::seconds(60)}, &progress_engine_);
    });
  }
  std::string run_in_background(OperationKind kind, const std::string& name) {
    const auto operation = submit(kind, name);
    progress_engine_.attend(ProgressEngine::Next::kUnknown);
    return error_after(
        [&] { operation->ticket->wait_within({.time = std::chrono::seconds(60)}, nullptr); });
  }

 private:
  template <typename Call>
  static std::string error_after(const Call& call) {
    try {
      call();
      return {};
    } catch (const KoloError& e) {
      return e.what();
    }
  }

  const SteadyClock clock_;
  std::vector<float> buffer_ = std::vector<float>(300, 1.0F);
  Engine engine_;
  test::LoneEngine lone_;
  ProgressEngine progress_engine_;
  EngineThread thread_;
};

TEST(EngineException, EndsTheJobWhoeverDrives) {
  for (const WaitPolicy& policy :
       {WaitPolicy{}, WaitPolicy{.spin = std::chrono::hours(1),
                      .background_spin = std::chrono::milliseconds(1)}}) {
    for (std::size_t at = 0; at < 180; at += 20) {
      CallFault fault(at);
      InProcessHub hub(ProcessGrid::with_node_sizes({1, 1}), EngineJob::kLimits);
      std::vector<std::string> errors(2);
      test::run_ranks(2, [&](const test::RankRun& run) {
        std::unique_ptr<Transport> transport = hub.transport(run.rank());
        if (run.rank() == kFaulty) {
          transport = std::make_unique<ThrowingTransport>(std::move(transport), fault);
        }
        DrivenRank rank(*transport, hub.grid(), policy);
        for (int i = 0; i < 3; ++i) {
          rank.run(OperationKind::kAllReduce, "driven");
          rank.run_in_background(OperationKind::kAllReduce, "left alone");
          rank.run(OperationKind::kBarrier, "barrier");
        }
        if (run.rank() == kFaulty) fault.end();
        errors[static_cast<std::size_t>(run.rank())] = rank.run(OperationKind::kClose, "");
      });
      EXPECT_EQ(errors[0].empty(), !fault.has_thrown()) << "call " << at;
      EXPECT_EQ(errors[1], errors[0]) << "call " << at;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, EngineExceptions,
                         testing::Values(std::vector<int>{2}, std::vector<int>{2, 1}));

}  // namespace
}  // namespace kolo
