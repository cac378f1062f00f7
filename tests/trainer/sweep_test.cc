#include "trainer/sweep/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "comm/base/error.h"
#include "tests/support/temporary_directory.h"

namespace kolo::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(GridTest, DimensionsAreOptionsWithValues) {
  const Dimension lr = parse_dimension("--lr=1e-3,3e-3");
  EXPECT_EQ(lr.option, "lr");
  EXPECT_THAT(lr.values, ElementsAre("1e-3", "3e-3"));
  EXPECT_THAT(parse_dimension("compression=none,topk(0.01,warmup=5),auto").values,
              ElementsAre("none", "topk(0.01,warmup=5)", "auto"));
  for (const char* text : {"", "lr", "lr=", "=1", "lr=1,,2", "lr=1,"}) {
    EXPECT_THROW(parse_dimension(text), UsageError) << text;
  }
}

TEST(GridTest, CombinationsChangeTheLastDimensionFirst) {
  std::vector<std::string> names;
  for (const Combination& combination :
       all_combinations({{"lr", {"1", "2"}}, {"data", {"a/b", "c"}}})) {
    names.push_back(folder_name(combination));
  }
  EXPECT_THAT(names, ElementsAre("lr=1,data=a_b", "lr=1,data=c", "lr=2,data=a_b", "lr=2,data=c"));
  EXPECT_THROW(all_combinations({{"lr", {"1"}}, {"lr", {"2"}}}), UsageError);
}

class ChildProcessesTest : public testing::Test {
 protected:
  ChildProcess shell(const std::string& text) {
    return {.words = {"sh", "-c", text}, .log = directory_.path() / "log"};
  }
  test::TemporaryDirectory directory_;
};

TEST_F(ChildProcessesTest, StatusesComeInTheOrderOfTheProcesses) {
  std::vector<std::size_t> order;
  const auto statuses = run_all({shell("sleep 0.3; exit 3"), shell("exit 0"), shell("kill -9 $$")},
                                3, [&](std::size_t index, int) { order.push_back(index); });
  EXPECT_THAT(statuses, ElementsAre(3, 0, 128 + 9));
  EXPECT_EQ(order.size(), 3u);
  EXPECT_EQ(order.back(), 0u) << "they run side by side";
}

TEST_F(ChildProcessesTest, OneAtATimeInOrder) {
  const auto path = (directory_.path() / "order").string();
  std::vector<ChildProcess> processes;
  for (const char* name : {"a", "b", "c"}) {
    processes.push_back(shell("printf " + std::string(name) + " >> " + path));
  }
  run_all(processes, 1, [](std::size_t, int) {});
  std::ifstream in(path);
  std::string text;
  in >> text;
  EXPECT_EQ(text, "abc");
}

TEST_F(ChildProcessesTest, AProgramThatIsNotThereIsNamed) {
  ChildProcess process{.words = {"no-such-program"}, .log = directory_.path() / "log"};
  try {
    run_all({process}, 1, [](std::size_t, int) {});
    FAIL() << "no error";
  } catch (const KoloError& error) {
    EXPECT_EQ(error.error().code, ErrorCode::kIo);
    EXPECT_THAT(error.what(), HasSubstr("no-such-program"));
  }
}

// The pipe ends when the last writer has. A process that outlives its parent says so.
TEST_F(ChildProcessesTest, TheyEndWithTheirParent) {
  const auto pipe = (directory_.path() / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    run_all({shell("exec 9>" + pipe + "; echo begun >&9; sleep 2 9>&-; echo survived >&9")}, 1,
            [](std::size_t, int) {});
    ::_exit(0);
  }
  std::ifstream in(pipe);
  std::string begun, survived;
  in >> begun;
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  in >> survived;
  EXPECT_EQ(begun, "begun");
  EXPECT_EQ(survived, "");
}

// A program of a few lines replaces kolo-train. Its held-out loss is the value of --x, and it fails
// for x = 9. It takes 8 steps, or the number in --stop-after, at which it saves and does
// not stop twice. If x is the value of --early, it takes one step, as if it had reached its target.
// The value of --late is the loss of a run to its end.
class SweepTest : public testing::Test {
 protected:
  SweepOptions options() const {
    return {.command = {"sh", "-c", kProgram, "program"},
            .options = {"--y", "7"},
            .dimensions = {{"x", {"3", "1", "9", "2"}}},
            .folder = directory_.path() / "sweep"};
  }

  std::vector<SweepResult> run(const SweepOptions& sweep) {
    std::FILE* out = std::tmpfile();
    const std::vector<SweepResult> results = run_sweep(sweep, out);
    std::fclose(out);
    return results;
  }

  static std::vector<std::string> values(const std::vector<SweepResult>& results) {
    std::vector<std::string> values;
    for (const SweepResult& result : results) values.push_back(result.combination[0].value);
    return values;
  }

 private:
  static constexpr const char* kProgram = R"(
    steps=8
    while [ $# -gt 0 ]; do
      case $1 in
        --x) x=$2 ;; --run) run=$2 ;; --stop-after) steps=$2 ;;
        --early) early=$2 ;; --late) late=$2 ;;
      esac
      shift 2
    done
    [ -e $run/../sweep.json ] || exit 77
    [ $x = 9 ] && exit 79
    if [ $x = "$early" ]; then steps=1
    elif [ $steps != 8 ]; then mkdir $run/step-0000000$steps || exit 78
    fi
    [ $steps = 8 ] && x=${late:-$x}
    echo "{\"step\":null,\"eval_loss\":0}" >> $run/metrics.jsonl
    echo "{\"step\":$steps,\"train_loss\":0.5}" >> $run/metrics.jsonl
    echo "{\"step\":$steps,\"eval_loss\":$x,\"eval_accuracy\":0.25}" >> $run/metrics.jsonl
  )";
  test::TemporaryDirectory directory_;
};

TEST_F(SweepTest, BestComesFirstAndFailedRunsLast) {
  const std::vector<SweepResult> results = run(options());
  EXPECT_THAT(values(results), ElementsAre("1", "2", "3", "9"));
  EXPECT_EQ(results[0].steps, 8u);
  EXPECT_EQ(results[0].eval_loss, 1.0);
  EXPECT_EQ(results[0].metric, "accuracy");
  EXPECT_EQ(results[3].status, 79);
  EXPECT_THAT(to_table(results),
              HasSubstr("9      0           -              -         -      79"));
  EXPECT_EQ(nlohmann::json::parse(to_json(results))[0]["options"]["x"], "1");
}

TEST_F(SweepTest, HalvingGivesTheBetterHalfTwiceTheSteps) {
  SweepOptions sweep = options();
  sweep.rounds = 3;
  sweep.steps = 8;
  sweep.at_once = 2;
  sweep.options = {"--late", "5"};  // the best run of the first rounds
  const std::vector<SweepResult> results = run(sweep);
  EXPECT_THAT(values(results), ElementsAre("1", "2", "3", "9"));
  std::vector<std::size_t> steps;
  for (const SweepResult& result : results) steps.push_back(result.steps);
  EXPECT_THAT(steps, ElementsAre(8u, 4u, 2u, 0u));
  EXPECT_EQ(to_json(run(sweep)), to_json(results)) << "what has been done is not done again";
}

TEST_F(SweepTest, ARunThatReachesItsTargetEarlyIsNoWorseForIt) {
  SweepOptions sweep = options();
  sweep.options = {"--early", "1"};
  EXPECT_THAT(values(run(sweep)), ElementsAre("1", "2", "3", "9"));
  sweep.folder += "_in_rounds";
  sweep.rounds = 3;
  sweep.steps = 8;
  const std::vector<SweepResult> results = run(sweep);
  EXPECT_THAT(values(results), ElementsAre("1", "2", "3", "9"));
  std::vector<std::size_t> steps;
  for (const SweepResult& result : results) steps.push_back(result.steps);
  EXPECT_THAT(steps, ElementsAre(1u, 4u, 2u, 0u));
}

TEST_F(SweepTest, RunsThatWouldShareAFolderAreRefused) {
  SweepOptions sweep = options();
  sweep.dimensions = {{"data", {"a/b", "c", "a_b"}}};
  try {
    run(sweep);
    FAIL() << "no error";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("two runs would have the folder data=a_b"));
  }
}

}  // namespace
}  // namespace kolo::trainer
