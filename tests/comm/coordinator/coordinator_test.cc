// Coordinators of all ranks in one thread: programs of several threads per rank that are correct,
// deadlocked or stalled, and ranks that freeze, fail or stop.

#include "comm/coordinator/coordinator.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/support/in_process_transport.h"

namespace kolo {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

constexpr TransportLimits kLimits{
    .arena_bytes = 4096, .flags_per_peer = 16, .counters = 2 * kMaxBuckets};
constexpr CoordinatorOptions kOptions{
    .mismatch_after = seconds(1), .peer_timeout = seconds(10), .stall_after = seconds(300)};
constexpr Duration kTick = milliseconds(50);

struct Wait final : Waited {
  int waiters() const override { return count; }
  int count = 0;
};

/// The coordinators of a job. Time stands still unless it is advanced.
class Job {
 public:
  explicit Job(const std::vector<int>& nodes, const CoordinatorOptions& options = kOptions)
      : hub_(ProcessGrid::with_node_sizes(nodes), kLimits) {
    for (int rank = 0; rank < size(); ++rank) {
      threads_.emplace_back(0);
      transports_.push_back(hub_.transport(rank));
      coordinators_.push_back(std::make_unique<Coordinator>(*transports_.back(), hub_.grid(), clock,
                                                            options, &threads_.back()));
    }
  }

  int size() const { return hub_.grid().world_size(); }
  Coordinator& coordinator(int rank) { return *coordinators_[static_cast<std::size_t>(rank)]; }
  Transport& transport(int rank) { return *transports_[static_cast<std::size_t>(rank)]; }
  /// Threads of the program that use the runtime of this rank.
  std::atomic<int>& threads(int rank) { return threads_[static_cast<std::size_t>(rank)]; }

  void poll(int rank, const std::vector<int>& awaited = {}) {
    transport(rank).poll();
    coordinator(rank).poll();
    if (coordinator(rank).is_check_due(!awaited.empty())) coordinator(rank).check_peers(awaited);
  }

  ManualClock clock;

 private:
  InProcessHub hub_;
  std::deque<std::atomic<int>> threads_;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<std::unique_ptr<Coordinator>> coordinators_;
};

// --- Programs -----------------------------------------------------------------------------------

/// Computes for a while, then waits until all ranks have submitted tensor `tensor`. Even tensors
/// are proposed by name, odd ones are buckets that are ready.
struct Step {
  Duration compute;
  int tensor;
};

struct UserThread {
  int rank;
  std::vector<Step> steps = {};
  bool lives_on = false;  ///< After its last step it goes on computing.
  std::size_t next = 0;
  TimePoint resumes{};
  std::optional<Topic> waits_for = {};
  std::optional<Error> error = {};

  bool is_over() const { return error || (next == steps.size() && !waits_for); }
};

std::string text_of(int tensor) { return "'tensor " + std::to_string(tensor) + "'"; }

/// Runs a program: in each step a random rank polls and its threads go on.
class Program {
 public:
  Program(const std::vector<int>& nodes, std::vector<UserThread> threads, unsigned seed)
      : job_(nodes), threads_(std::move(threads)), random_(seed) {
    for (UserThread& thread : threads_) {
      ++job_.threads(thread.rank);
      if (!thread.steps.empty()) thread.resumes += thread.steps[0].compute;
    }
  }

  /// Until all threads are over, or for so long.
  void run(Duration limit) {
    testing::internal::CaptureStderr();
    const TimePoint end = now() + limit;
    while (now() < end && !std::ranges::all_of(threads_, &UserThread::is_over)) {
      for (int i = 0; i < 2 * job_.size(); ++i) {
        poll(static_cast<int>(random_() % static_cast<unsigned>(job_.size())));
      }
      job_.clock.advance(kTick);
    }
    log_ = testing::internal::GetCapturedStderr();
  }

  /// Lines that the last run logged.
  const std::string& log() const { return log_; }
  const std::vector<UserThread>& threads() const { return threads_; }
  TimePoint now() const { return job_.clock.now(); }

 private:
  void poll(int rank) {
    for (UserThread& thread : threads_) {
      const bool is_due = !thread.waits_for && !thread.is_over() && now() >= thread.resumes;
      if (thread.rank == rank && is_due) submit(thread);
    }
    job_.poll(rank);
    for (const Frame& decision : job_.coordinator(rank).take_decisions()) {
      if (decision.kind == FrameKind::kAccept) end(rank, decision.topic, std::nullopt);
      for (const Topic& topic : decision.topics) end(rank, topic, decision.error);
    }
    for (const Agreed& agreed : job_.coordinator(rank).take_agreed()) {
      end(rank, {bucket_key(agreed.bucket), agreed.iteration}, std::nullopt);
    }
    ASSERT_FALSE(job_.coordinator(rank).failure()) << job_.coordinator(rank).failure()->to_string();
  }

  void submit(UserThread& thread) {
    Wait& wait = waits_.emplace_back();
    wait.count = 1;
    const int tensor = thread.steps[thread.next++].tensor;
    const std::string& text = texts_.emplace_back(text_of(tensor));
    Coordinator& coordinator = job_.coordinator(thread.rank);
    if (tensor % 2 == 0) {
      thread.waits_for = coordinator.propose(text, 1, text, wait);
    } else {
      const auto bucket = static_cast<BucketId>(tensor);
      coordinator.arrive(bucket, 0, {.text = text, .waited = wait});
      thread.waits_for = Topic{bucket_key(bucket), 0};
    }
    wait_of_[{thread.rank, *thread.waits_for}] = &wait;
  }

  void end(int rank, const Topic& topic, const std::optional<Error>& error) {
    for (UserThread& thread : threads_) {
      if (thread.rank != rank || thread.waits_for != topic) continue;
      wait_of_.at({rank, topic})->count = 0;
      thread.waits_for.reset();
      thread.error = error;
      if (thread.is_over()) {
        if (!thread.lives_on) --job_.threads(rank);
      } else {
        thread.resumes = now() + thread.steps[thread.next].compute;
      }
    }
  }

  Job job_;
  std::vector<UserThread> threads_;
  std::mt19937 random_;
  std::deque<Wait> waits_;
  std::deque<std::string> texts_;
  std::map<std::pair<int, Topic>, Wait*> wait_of_;
  std::string log_;
};

const std::vector<std::vector<int>> kShapes = {{2}, {3}, {1, 1}, {2, 1}};

int world_size(const std::vector<int>& nodes) {
  int size = 0;
  for (const int ranks : nodes) size += ranks;
  return size;
}

/// Every rank gives each tensor to a thread of its choice, and each thread takes its tensors in
/// ascending order: whatever threads compute in between, the first tensor that is not agreed can
/// always go on.
std::vector<UserThread> correct_program(int ranks, int threads, int tensors, std::mt19937& random) {
  std::vector<UserThread> program;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<UserThread> mine(static_cast<std::size_t>(threads), UserThread{.rank = rank});
    for (int tensor = 0; tensor < tensors; ++tensor) {
      const Duration compute = milliseconds(random() % 3 == 0 ? random() % 15'000 : random() % 100);
      mine[random() % mine.size()].steps.push_back({compute, tensor});
    }
    for (UserThread& thread : mine) {
      // One without work has called the runtime, and ends later or never.
      if (thread.steps.empty()) thread.lives_on = true;
      program.push_back(std::move(thread));
    }
  }
  return program;
}

TEST(MismatchRule, CorrectProgramsNeverFail) {
  for (unsigned seed = 0; seed < 160; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto& nodes = kShapes[seed % kShapes.size()];
    const int threads = 1 + static_cast<int>(seed / kShapes.size() % 4);
    Program program(nodes, correct_program(world_size(nodes), threads, 8, random), seed);
    program.run(hours(1));
    for (const UserThread& thread : program.threads()) {
      ASSERT_TRUE(thread.is_over()) << "rank " << thread.rank << " hangs";
      ASSERT_FALSE(thread.error) << thread.error->to_string();
    }
  }
}

// Two threads per rank call two operations, each rank in the other order and seconds apart.
TEST(MismatchRule, ThreadsMayCallInOppositeOrderSecondsApart) {
  for (const seconds apart : {seconds(4), seconds(100)}) {
    std::vector<UserThread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.push_back({.rank = rank, .steps = {{rank == 0 ? seconds(0) : apart, 0}}});
      threads.push_back({.rank = rank, .steps = {{rank == 0 ? apart : seconds(0), 1}}});
    }
    Program program({2}, threads, 1);
    program.run(hours(1));
    for (const UserThread& thread : program.threads()) {
      EXPECT_TRUE(thread.is_over());
      EXPECT_FALSE(thread.error) << thread.error->to_string();
    }
  }
}

// At the end of a correct program one thread of rank 1 takes two more tensors in another order than
// those of other ranks. By then its other threads have ended.
TEST(MismatchRule, DeadlockedProgramsFailSoonAndNameBothTensors) {
  for (unsigned seed = 0; seed < 160; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto& nodes = kShapes[seed % kShapes.size()];
    const int ranks = world_size(nodes);
    const int threads = 1 + static_cast<int>(seed / kShapes.size() % 4);
    std::vector<UserThread> program = correct_program(ranks, threads, 6, random);
    std::erase_if(program, [](const UserThread& thread) { return thread.steps.empty(); });
    std::set<int> done;
    for (UserThread& thread : program) {
      if (!done.insert(thread.rank).second) continue;
      const int first = thread.rank == 1 ? 11 : 10;
      thread.steps.push_back({milliseconds(random() % 3000), first});
      thread.steps.push_back({milliseconds(0), 21 - first});
    }
    Program run(nodes, program, seed);
    run.run(hours(1));
    std::string first_error;
    for (const UserThread& thread : run.threads()) {
      ASSERT_TRUE(thread.is_over()) << "rank " << thread.rank << " hangs";
      if (thread.steps.back().tensor < 10) {
        ASSERT_FALSE(thread.error) << thread.error->to_string();
        continue;
      }
      ASSERT_TRUE(thread.error);
      EXPECT_EQ(thread.error->code, ErrorCode::kMismatch);
      EXPECT_THAT(thread.error->what,
                  AllOf(HasSubstr(text_of(10)), HasSubstr("rank 1 waits for " + text_of(11))));
      if (first_error.empty()) first_error = thread.error->to_string();
      EXPECT_EQ(thread.error->to_string(), first_error);
    }
  }
}

TEST(MismatchRule, ADeadlockIsFoundWithinAFewMismatchPeriods) {
  std::vector<UserThread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.push_back({.rank = rank, .steps = {{seconds(0), rank == 1 ? 1 : 0}}});
    threads.push_back({.rank = rank, .steps = {{seconds(0), rank == 1 ? 3 : 2}}});
  }
  Program program({2, 1}, threads, 1);
  program.run(4 * kOptions.mismatch_after);
  for (const UserThread& thread : program.threads()) EXPECT_TRUE(thread.error);
}

// A thread of rank 1 that has used the runtime goes on computing: it may still submit what rank 0
// waits for, until the stall limit.
TEST(MismatchRule, AStallWarnsAllRanksAndIsAnErrorAfterTheStallLimit) {
  std::vector<UserThread> threads = {{.rank = 0, .steps = {{seconds(0), 0}}},
                                     {.rank = 1, .steps = {{seconds(0), 1}}},
                                     {.rank = 1, .steps = {}, .lives_on = true},
                                     {.rank = 2, .steps = {{seconds(0), 0}}}};
  Program program({3}, threads, 1);
  program.run(4 * kOptions.mismatch_after);
  const std::string& log = program.log();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 3) << log;
  EXPECT_THAT(log,
              AllOf(HasSubstr("ranks 0, 2 wait for 'tensor 0', which rank 1 has not submitted"),
                    HasSubstr("rank 1 waits for 'tensor 1', which ranks 0, 2 have not")));
  for (const UserThread& thread : program.threads()) EXPECT_FALSE(thread.error);

  program.run(kOptions.stall_after - 10 * kOptions.mismatch_after);
  for (const UserThread& thread : program.threads()) EXPECT_FALSE(thread.error);
  program.run(kOptions.peer_timeout + 10 * kOptions.mismatch_after);
  for (const UserThread& thread : program.threads()) {
    if (thread.steps.empty()) continue;
    ASSERT_TRUE(thread.error) << "rank " << thread.rank;
    EXPECT_EQ(thread.error->code, ErrorCode::kStall);
    EXPECT_THAT(thread.error->what, AllOf(HasSubstr("'tensor 0'"), HasSubstr("'tensor 1'")));
  }
}

// --- Life and death -----------------------------------------------------------------------------

// A rank waits for a tensor that busy ranks do not submit. However long they have lived by then,
// and whatever the mismatch period, a rank that freezes is named within 1.25 peer_timeout.
TEST(Liveness, ARankThatFreezesLateIsNoticedAsSoonAsOneThatFreezesEarly) {
  const auto expect_noticed = [](int frozen, Duration lived, const CoordinatorOptions& options) {
    Job job({2, 1}, options);
    Wait wait;
    const int waiting = frozen == 2 ? 1 : 2;
    job.coordinator(waiting).propose("x", 1, "'x'", wait);
    const auto play = [&](Duration time, bool is_frozen) {
      for (const TimePoint end = job.clock.now() + time; job.clock.now() < end;) {
        for (int rank = 0; rank < 3; ++rank) {
          if (rank != frozen || !is_frozen) job.poll(rank);
        }
        job.clock.advance(kTick);
      }
    };
    play(lived, false);
    ASSERT_FALSE(job.coordinator(waiting).failure());
    play(options.peer_timeout * 5 / 4, true);
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == frozen) continue;
      const auto& failure = job.coordinator(rank).failure();
      ASSERT_TRUE(failure) << "rank " << rank << " waits for frozen " << frozen;
      EXPECT_EQ(failure->peer, frozen);
    }
  };
  for (const int frozen : {0, 1, 2}) {
    for (const Duration lived : {Duration(0), Duration(seconds(33)), Duration(seconds(500))}) {
      for (const seconds peer_timeout : {seconds(2), seconds(10)}) {
        for (const seconds mismatch_after : {seconds(1), seconds(60)}) {
          SCOPED_TRACE(fmt::format("{} s of {} s, {} s", lived / seconds(1), peer_timeout.count(),
                                   mismatch_after.count()));
          expect_noticed(frozen, lived,
                         {.mismatch_after = mismatch_after, .peer_timeout = peer_timeout});
        }
      }
    }
  }
}

// Rank 2's proposal crosses the query that it never answers.
TEST(Liveness, AnOlderFrameIsNoAnswerToAnInquiry) {
  Job job({3});
  Wait wait, none;
  job.coordinator(1).propose("x", 1, "'x'", wait);
  const auto play = [&](Duration time, const std::vector<int>& ranks) {
    for (const TimePoint end = job.clock.now() + time; job.clock.now() < end;) {
      for (const int rank : ranks) job.poll(rank);
      job.clock.advance(kTick);
    }
  };
  play(2 * kOptions.mismatch_after, {0, 1});  // The query waits at rank 2.
  job.coordinator(2).propose("y", 1, "'y'", none);
  job.coordinator(2).poll();  // Sends, but has not received.
  play(kTick, {0, 1});
  play(2 * kOptions.peer_timeout, {0, 1});
  ASSERT_TRUE(job.coordinator(0).failure());
  EXPECT_EQ(job.coordinator(0).failure()->peer, 2);
}

// Both ranks are suspended for an hour and continued: no time has passed for the peer either.
TEST(Liveness, TimeInWhichTheJudgeWasStoppedDoesNotCount) {
  Job job({2});
  for (int i = 0; i < 20; ++i) {
    job.poll(0, {1});
    job.clock.advance(milliseconds(250));
  }
  job.poll(1);
  job.poll(0, {1});
  job.clock.advance(milliseconds(250));
  job.poll(0, {1});  // Asks.
  job.clock.advance(hours(1));
  job.poll(0, {1});
  EXPECT_FALSE(job.coordinator(0).failure());
  job.poll(1);
  job.clock.advance(milliseconds(250));
  job.poll(0, {1});
  EXPECT_FALSE(job.coordinator(0).failure());
}

// Rank 1 says that rank 2 is lost and leaves. Rank 0 comes late and finds both.
TEST(Liveness, APeersAccountOfAFailureComesBeforeThePeersAbsence) {
  Job job({2, 1});
  job.coordinator(1).fail({.code = ErrorCode::kPeerLost, .rank = 1, .peer = 2, .what = "2 froze"});
  job.transport(1).shutdown(false);
  job.poll(0);
  ASSERT_TRUE(job.transport(0).failure());
  ASSERT_TRUE(job.coordinator(0).failure());
  EXPECT_EQ(job.coordinator(0).failure()->peer, 2);
}

// Rank 0 rejects a tensor, and its program ends because of that. Rank 1 finds both at once, and
// fails for the same reason.
TEST(Liveness, ADecisionThatCameBeforeAFailureCounts) {
  Job job({2});
  Wait wait;
  job.coordinator(0).propose("x", 1, "'x': [1]", wait);
  job.coordinator(1).propose("x", 2, "'x': [2]", wait);
  std::vector<Frame> decisions;
  testing::internal::CaptureStderr();
  while (decisions.empty()) {
    job.poll(1);
    job.poll(0);
    decisions = job.coordinator(0).take_decisions();
  }
  job.coordinator(0).leave({.code = ErrorCode::kPeerLost, .rank = 0, .what = "rank 0 left"});
  testing::internal::GetCapturedStderr();
  job.poll(1);
  EXPECT_TRUE(job.coordinator(1).failure());
  decisions = job.coordinator(1).take_decisions();
  ASSERT_EQ(decisions.size(), 1U);
  EXPECT_EQ(decisions[0].error.code, ErrorCode::kMismatch);
}

TEST(Liveness, LimitsOfAnyLengthDoNotOverflow) {
  CoordinatorOptions options{.mismatch_after = saturated(milliseconds::max()),
                             .peer_timeout = saturated(milliseconds(10'000'000'000'000)),
                             .stall_after = Duration::max()};
  Job job({2}, options);
  Wait wait;
  job.coordinator(0).propose("x", 1, "'x'", wait);
  for (int i = 0; i < 1000; ++i) {
    job.poll(0, {1});
    job.clock.advance(seconds(1));
  }
  EXPECT_FALSE(job.coordinator(0).failure());
}

}  // namespace
}  // namespace kolo
