// Tests whole ranks, one per thread, each with a watchdog. Transport calls of one rank do not
// return until the test lets them.

#include "runtime/wait/watchdog.h"

#include <gmock/gmock.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "runtime/calls/operation.h"
#include "runtime/engine/connect.h"
#include "runtime/engine/engine.h"
#include "runtime/wait/progress_engine.h"
#include "tests/support/calls/sized_tensor.h"
#include "tests/support/lone_engine.h"
#include "tests/support/memory_rendezvous.h"
#include "tests/support/rank_harness.h"
#include "tests/support/throwing_transport.h"

namespace kolo {
namespace {

using std::chrono::milliseconds;
using test::CallGate;
using testing::AllOf;
using testing::HasSubstr;

constexpr std::chrono::seconds kPatience{60};

/// Lines that a watchdog has logged. Other threads can wait for them.
class WatchdogLines {
 public:
  void add(std::string_view line) {
    {
      const MutexLock lock(mutex_);
      lines_.emplace_back(line);
    }
    added_.notify_all();
  }
  /// Waits for the first line that contains `part`, and returns it. Empty if it is never logged.
  std::string await(const std::string& part) {
    MutexLock lock(mutex_);
    std::string found;
    added_.wait_for(lock, kPatience, [&]() KOLO_REQUIRES(mutex_) {
      const auto has = [&](const std::string& line) {
        return line.find(part) != std::string::npos;
      };
      const auto line = std::ranges::find_if(lines_, has);
      if (line != lines_.end()) found = *line;
      return !found.empty();
    });
    return found;
  }

 private:
  Mutex mutex_;
  ConditionVariable added_;
  std::vector<std::string> lines_ KOLO_GUARDED_BY(mutex_);
};

/// One rank of a job on one node, with the members of Runtime. Its transport calls pass `hook`.
class WatchedRank {
 public:
  WatchedRank(Rendezvous& rendezvous, test::CallHook& hook, WatchdogLines& lines,
              Duration give_up_after)
      : connection_(connect(rendezvous, kOptions)),
        transport_(std::move(connection_.transport), hook),
        engine_(transport_, connection_.grid, EngineClocks{clock_, clock_}, kOptions,
                connection_.calibration, connection_.limits, nullptr, nullptr, nullptr,
                {.pulse = &pulse_}),
        lone_(engine_, transport_, connection_.grid, EngineClocks{clock_, clock_}, &pulse_),
        progress_engine_(lone_.engines(), transport_, WaitPolicy{}),
        watchdog_(progress_engine_.progress_lock(), pulse_, engine_.acts(),
                  {.warn_after = milliseconds(200), .give_up_after = give_up_after},
                  {.warn = [&lines](std::string_view line) { lines.add(line); },
                   .note_stuck = [this](std::string_view verb) { transport_.note_stuck(verb); },
                   .give_up = [this](const StallJudge::Verdict& verdict) { give_up(verdict); }}),
        thread_(progress_engine_) {}

  /// Sums one element of each rank. Returns the error, or an empty string.
  std::string all_reduce(const std::string& name) {
    const auto value =
        std::make_shared<std::vector<float>>(1, transport_.rank() == 0 ? 1.0F : 2.0F);
    const auto operation = std::make_shared<Operation>(
        Operation{.kind = OperationKind::kAllReduce,
                  .name = name,
                  .tensors = test::in_place({value->data(), value->size(), DType::kFloat32})});
    used_.push_back(value);
    engine_.submit(operation);
    try {
      if (!operation->ticket->wait(kPatience, &progress_engine_)) return "nothing came";
    } catch (const KoloError& e) {
      return e.what();
    }
    return value->front() == 3 ? "" : "a wrong sum";
  }

  const Pulse& pulse() const { return pulse_; }

  void close() {
    auto operation = std::make_shared<Operation>(Operation{.kind = OperationKind::kClose});
    engine_.submit(operation);
    operation->ticket->wait(kPatience, &progress_engine_);
  }

 private:
  inline static const Options kOptions{
      .calibrate = "off", .arena_bytes = std::size_t{1} << 20, .node_id = "a"};

  void give_up(const StallJudge::Verdict& verdict) {
    const Error error{.code = ErrorCode::kStall,
                      .rank = transport_.rank(),
                      .verb = std::string(to_string(verdict.verb)),
                      .what = "given up"};
    transport_.post_error(error);
    engine_.abort(error);
    progress_engine_.give_up(error);
  }

  const SteadyClock clock_;
  std::vector<std::shared_ptr<std::vector<float>>> used_;  // must outlive the engine
  Connection connection_;
  test::ThrowingTransport transport_;
  Pulse pulse_;
  Engine engine_;
  test::LoneEngine lone_;
  ProgressEngine progress_engine_;
  Watchdog watchdog_;
  EngineThread thread_;
};

void sum_works(WatchedRank& rank, const std::string& name) {
  const std::string error = rank.all_reduce(name);
  if (!error.empty()) throw std::runtime_error(name + ": " + error);
}

void sum_and_close(WatchedRank& rank) {
  sum_works(rank, "second");
  rank.close();
}

/// After a sum of both ranks, runs `body` as rank 1, whose calls pass the gate, and `others` as 0.
void run_beside_a_stuck_rank(CallGate& gate, WatchdogLines& lines, Duration give_up_after,
                             const std::function<void(WatchedRank&)>& body,
                             const std::function<void(WatchedRank&)>& others) {
  auto endpoints = make_memory_rendezvous(2, kPatience);
  CallGate open("");
  WatchdogLines unused;
  test::run_ranks(2, [&](const test::RankRun& run) {
    const bool is_stuck = run.rank() == 1;
    WatchedRank rank(*endpoints[static_cast<std::size_t>(run.rank())], is_stuck ? gate : open,
                     is_stuck ? lines : unused, is_stuck ? give_up_after : Duration::max());
    sum_works(rank, "first");
    (is_stuck ? body : others)(rank);
  });
}

TEST(Watchdog, NamesTheVerbOfACallThatDoesNotReturnAndTellsWhenItDoes) {
  for (const auto& [call, verb] :
       {std::pair{"signal", "run"}, {"receive_control", "agree"}, {"poll", "agree"}}) {
    SCOPED_TRACE(call);
    CallGate gate(call);
    WatchdogLines lines;
    const std::string quoted = std::string("'") + verb + "'";
    run_beside_a_stuck_rank(
        gate, lines, Duration::max(),
        [&](WatchedRank& rank) {
          gate.shut();
          std::thread warden([&] {
            EXPECT_THAT(
                lines.await("has not returned"),
                AllOf(HasSubstr("the engine has not returned from " + quoted + " for "),
                      HasSubstr("last act: completed 'first': all_reduce float32 [1] sum")));
            gate.open();
          });
          sum_and_close(rank);
          warden.join();
        },
        sum_and_close);
    EXPECT_THAT(lines.await("moves again"), HasSubstr(" in " + quoted));
  }
}

// A rank that waits for others is not stuck.
TEST(Watchdog, SeesThatARankThatWaitsComesBackFromItsSleep) {
  CallGate gate("");
  WatchdogLines lines;
  std::atomic<const Pulse*> pulse = nullptr;
  run_beside_a_stuck_rank(
      gate, lines, Duration::max(),
      [&](WatchedRank& rank) {
        pulse = &rank.pulse();
        sum_and_close(rank);
      },
      [&](WatchedRank& rank) {
        auto sleeps = [&, last = Pulse::Reading()]() mutable {
          const Pulse::Reading now = pulse.load()->read();
          return now.verb == EngineVerb::kWait && std::exchange(last, now) != now;
        };
        while (pulse == nullptr) std::this_thread::yield();
        for (int seen = 0; seen < 5; seen += sleeps() ? 1 : 0) std::this_thread::yield();
        sum_and_close(rank);
      });
}

// The stuck thread stays stuck, but another thread gets the error immediately. When the call
// returns, its sum may still complete, but then the job ends with the error.
TEST(Watchdog, GivesUpSoThatOnlyTheStuckThreadWaits) {
  CallGate gate("signal");
  WatchdogLines lines;
  std::vector<std::string> errors(3);
  run_beside_a_stuck_rank(
      gate, lines, milliseconds(400),
      [&](WatchedRank& rank) {
        gate.shut();
        std::thread other([&] {
          gate.await_call();
          errors[0] = rank.all_reduce("of another thread");
          gate.open();
        });
        rank.all_reduce("second");
        other.join();
        errors[1] = rank.all_reduce("third");
      },
      [&](WatchedRank& rank) {
        rank.all_reduce("second");
        errors[2] = rank.all_reduce("third");
      });
  EXPECT_THAT(errors, testing::Each(HasSubstr("rank 1: run: given up")));
}

// Peers learn the reason while the call has not returned, whether they sleep or poll.
TEST(Watchdog, TellsPeersOfTheNodeWhyTheRankIsMute) {
  CallGate gate("signal");
  WatchdogLines lines;
  std::string error, later;
  run_beside_a_stuck_rank(
      gate, lines, milliseconds(400),
      [&](WatchedRank& rank) {
        gate.shut();
        rank.all_reduce("second");
      },
      [&](WatchedRank& rank) {
        error = rank.all_reduce("second");
        later = rank.all_reduce("third");
        gate.open();
      });
  EXPECT_EQ(error, "rank 1: run: given up");
  EXPECT_EQ(later, error);
}

TEST(Watchdog, WarnsBeforePeersTakeTheRankForLost) {
  using std::chrono::seconds;
  const auto limits = [](milliseconds stall_warn, Duration stall_limit) {
    const Options options{.peer_timeout = seconds(10), .stall_warn = stall_warn};
    const StallJudge::Limits found = Watchdog::limits(options, stall_limit);
    return std::pair(found.warn_after, found.give_up_after);
  };
  using Times = std::pair<Duration, Duration>;
  EXPECT_EQ(limits(seconds(60), seconds(540)), Times(seconds(5), seconds(540)));
  EXPECT_EQ(limits(seconds(3), Duration::max()), Times(seconds(3), Duration::max()));
  EXPECT_EQ(limits(milliseconds(0), seconds(60)), Times(seconds(5), seconds(60)))
      << "nobody is warned, but peers of the node are to know, and the thread is given up";
  EXPECT_EQ(limits(milliseconds(1), milliseconds(2)), Times(milliseconds(500), milliseconds(500)))
      << "a progress_engine that waits may sleep for a tenth of this";
}

}  // namespace
}  // namespace kolo
