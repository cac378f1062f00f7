// Runs the coordinators of all ranks in one thread. The programs have several threads per rank, and
// are correct, deadlocked or stalled.

#include "comm/coordinator/coordinator.h"

#include <gmock/gmock.h>

#include <deque>
#include <random>

#include "tests/comm/coordinator/coordinator_job.h"

namespace kolo {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using test::CoordinatorJob;
using test::kOptions;
using test::kTick;
using test::Wait;
using testing::AllOf;
using testing::HasSubstr;

// --- Programs -----------------------------------------------------------------------------------

/// A thread computes, then waits until all ranks have submitted tensor `tensor`. Even tensors are
/// proposed by name, odd tensors are buckets that are ready.
struct Step {
  Duration compute;
  int tensor;
};

struct UserThread {
  int rank;
  std::vector<Step> steps = {};
  bool lives_on = false;  ///< Whether the thread computes forever after its last step.
  std::size_t next = 0;
  TimePoint resumes{};
  std::optional<ProposalKey> waits_for = {};
  std::optional<Error> error = {};

  bool is_over() const { return error || (next == steps.size() && !waits_for); }
};

std::string text_of(int tensor) { return "'tensor " + std::to_string(tensor) + "'"; }

/// Runs a program. In each step a random rank polls and its threads continue.
class Program {
 public:
  Program(const std::vector<int>& nodes, std::vector<UserThread> threads, unsigned seed)
      : job_(nodes), threads_(std::move(threads)), random_(seed) {
    for (UserThread& thread : threads_) {
      ++job_.threads(thread.rank);
      if (!thread.steps.empty()) thread.resumes += thread.steps[0].compute;
    }
  }

  /// Runs until all threads have ended, but at most for `limit`.
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

  /// Returns the lines that the last run logged.
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
      if (decision.kind == FrameKind::kAccept) end(rank, decision.key, std::nullopt);
      for (const ProposalKey& key : decision.keys) end(rank, key, decision.error);
    }
    for (const Agreed& agreed : job_.coordinator(rank).take_agreed()) {
      end(rank, {bucket_hash(agreed.bucket), agreed.iteration}, std::nullopt);
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
      coordinator.mark_ready(bucket, 0, {.text = text, .waited = wait});
      thread.waits_for = ProposalKey{bucket_hash(bucket), 0};
    }
    wait_of_[{thread.rank, *thread.waits_for}] = &wait;
  }

  void end(int rank, const ProposalKey& key, const std::optional<Error>& error) {
    for (UserThread& thread : threads_) {
      if (thread.rank != rank || thread.waits_for != key) continue;
      wait_of_.at({rank, key})->count = 0;
      thread.waits_for.reset();
      thread.error = error;
      if (thread.is_over()) {
        if (!thread.lives_on) --job_.threads(rank);
      } else {
        thread.resumes = now() + thread.steps[thread.next].compute;
      }
    }
  }

  CoordinatorJob job_;
  std::vector<UserThread> threads_;
  std::mt19937 random_;
  std::deque<Wait> waits_;
  std::deque<std::string> texts_;
  std::map<std::pair<int, ProposalKey>, Wait*> wait_of_;
  std::string log_;
};

/// The last two shapes have other parents in the tree than the first ones.
const std::vector<std::vector<int>> kShapes = {{2},    {3},  {1, 1},
                                               {2, 1}, {10}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1}};

int world_size(const std::vector<int>& nodes) {
  int size = 0;
  for (const int ranks : nodes) size += ranks;
  return size;
}

/// Returns a program that cannot deadlock. Every rank assigns each tensor to a random thread, and
/// each thread submits its tensors in ascending order. The first tensor without agreement can thus
/// always proceed, however long threads compute.
std::vector<UserThread> correct_program(int ranks, int threads, int tensors, std::mt19937& random) {
  std::vector<UserThread> program;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<UserThread> mine(static_cast<std::size_t>(threads), UserThread{.rank = rank});
    for (int tensor = 0; tensor < tensors; ++tensor) {
      const Duration compute = milliseconds(random() % 3 == 0 ? random() % 15'000 : random() % 100);
      mine[random() % mine.size()].steps.push_back({compute, tensor});
    }
    for (UserThread& thread : mine) {
      // A thread without steps has called the runtime, and computes for a while or forever.
      if (thread.steps.empty()) thread.lives_on = true;
      program.push_back(std::move(thread));
    }
  }
  return program;
}

/// Each shape three times with each number of threads.
constexpr unsigned kPrograms = 72;

TEST(MismatchRule, CorrectProgramsNeverFail) {
  for (unsigned seed = 0; seed < kPrograms; ++seed) {
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

// Two threads per rank call two operations. The ranks call them in opposite orders, seconds apart.
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

// At the end of a correct program, one thread of rank 1 submits two further tensors in another
// order than the threads of other ranks. Its other threads have ended by then.
TEST(MismatchRule, DeadlockedProgramsFailSoonAndNameBothTensors) {
  for (unsigned seed = 0; seed < kPrograms; ++seed) {
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

// A thread of rank 1 that has used the runtime still computes. Until the stall limit it may submit
// the tensor for which rank 0 waits.
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

}  // namespace
}  // namespace kolo
