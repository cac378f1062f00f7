// Tests disagreement and misuse. After these errors, the job still works.

#include <gmock/gmock.h>

#include <chrono>
#include <thread>

#include "tests/runtime/api/runtime_calls.h"

namespace kolo::test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

TEST(RuntimeMismatch, IsTheSameErrorOnAllRanksAndTheNextOperationWorks) {
  constexpr int kRanks = 3;
  Texts shapes(kRanks), names(kRanks), sets(kRanks);
  RuntimeJob(kRanks, test_options()).run([&](Runtime& runtime) {
    const bool odd = runtime.rank() == 1;
    std::vector<float> data(odd ? 20 : 64);
    shapes.set(runtime.rank(), error_of([&] { runtime.all_reduce("x", view(data)).wait(); }));
    all_reduce_works(runtime, "x");
    names.set(runtime.rank(),
              error_of([&] { runtime.all_reduce(odd ? "y" : "z", view(data)).wait(); }));
    all_reduce_works(runtime, "z");
    sets.set(runtime.rank(), error_of([&] {
               runtime.register_gradients("model",
                                          {{.name = "same", .shape = {1}},
                                           {.name = odd ? "bias" : "weight", .shape = {1}}});
             }));
    GradientSet set = runtime.register_gradients("model", {{.name = "same", .shape = {1}}});
    set.ready(0);
    set.wait();
  });
  EXPECT_THAT(shapes.all(), Each(shapes.all()[0]));
  EXPECT_THAT(shapes.all()[0],
              AllOf(HasSubstr("mismatch"), HasSubstr("rank 1 submits 'x': all_reduce float32 [20]"),
                    HasSubstr("ranks 0, 2 submit 'x': all_reduce float32 [64]")));
  EXPECT_THAT(names.all(), Each(names.all()[0]));
  EXPECT_THAT(names.all()[0], AllOf(HasSubstr("mismatch"), HasSubstr("rank 1 waits for 'y'"),
                                    HasSubstr("ranks 0, 2 wait for 'z'")));
  EXPECT_THAT(sets.all(), Each(sets.all()[0]));
  EXPECT_THAT(sets.all()[0], AllOf(HasSubstr("mismatch"), HasSubstr("rank 1 submits 'bias'"),
                                   HasSubstr("ranks 0, 2 submit 'weight'")));
}

// Each rank has two threads, which call two operations in opposite orders. The second thread
// computes for many mismatch periods before its call.
TEST(RuntimeMismatch, IsNotWhatAnotherThreadCanStillSubmit) {
  Options options = test_options();
  options.mismatch_after = std::chrono::milliseconds(2);
  RuntimeJob(2, options).run([](Runtime& runtime) {
    run_ranks(2, [&](const RankRun& thread) {
      const bool is_late = thread.rank() == runtime.rank();
      require(runtime.rank() < 2, "the runtime knows this thread");
      if (is_late) std::this_thread::sleep_for(std::chrono::milliseconds(100));
      all_reduce_works(runtime, thread.rank() == 0 ? "a" : "b");
    });
  });
}

TEST(RuntimeMismatch, IsFoundOnceAllThreadsWait) {
  Texts errors(2);
  RuntimeJob(2, test_options()).run([&](Runtime& runtime) {
    std::thread has_ended([&] { all_reduce_works(runtime, "first"); });
    has_ended.join();
    std::vector<float> data(10);
    errors.set(runtime.rank(), error_of([&] {
                 runtime.all_reduce(runtime.rank() == 0 ? "a" : "b", view(data)).wait();
               }));
  });
  EXPECT_THAT(errors.all(), Each(AllOf(HasSubstr("mismatch"), HasSubstr("rank 0 waits for 'a'"),
                                       HasSubstr("rank 1 waits for 'b'"))));
}

TEST(RuntimeMismatch, OfOptionsEndsEveryRankAtTheStart) {
  constexpr int kRanks = 3;
  Texts errors(kRanks);
  RuntimeJob job(kRanks, test_options());
  run_ranks(kRanks, [&](const RankRun& run) {
    Options options = test_options();
    if (run.rank() == 2) options.fusion_bytes = 7;
    errors.set(run.rank(), error_of([&] { job.join(run.rank(), options); }));
  });
  EXPECT_THAT(errors.all(), Each(errors.all()[0]));
  EXPECT_THAT(errors.all()[0],
              AllOf(HasSubstr("configuration"), HasSubstr("fusion_bytes is 7 on rank 2"),
                    HasSubstr("on ranks 0, 1")));
}

// A buffer has the dtype of its type. In float32, the larger number would be rounded.
TEST(RuntimeCalls, TakeBuffersOfAnyElementType) {
  RuntimeJob(2, test_options()).run([](Runtime& runtime) {
    double value = 1e-5 * (runtime.rank() + 1);
    runtime.all_reduce("value", {&value, 1}, ReduceOp::kMax).wait();
    require(value == 2e-5, "the maximum");
    std::vector<std::int64_t> numbers(3, std::int64_t{1} << 40);
    runtime.all_reduce("numbers", numbers).wait();
    require(numbers[2] == std::int64_t{1} << 41, "the sum");
    std::vector<double> gradient(5, runtime.rank() + 0.5);
    GradientSet set = runtime.register_gradients("model", {{.name = "g", .data = gradient}});
    set.ready(0);
    set.wait();
    require(gradient[4] == 1.0, "the average");
  });
}

TEST(RuntimeMisuse, IsAnErrorAtTheCallAndHarmsNothing) {
  RuntimeJob(2, test_options()).run([](Runtime& runtime) {
    const auto expect = [](const std::string& error, const std::string& text) {
      require(error.starts_with("usage") && error.find(text) != std::string::npos,
              "'" + error + "' does not say " + text);
    };
    GradientSet set = runtime.register_gradients(
        "model", {{.name = "weight", .shape = {3}}, {.name = "bias", .shape = {2}}});
    expect(error_of([&] { set.wait(); }), "'weight', 'bias'");
    set.ready(0);
    expect(error_of([&] { set.ready(0); }), "twice for gradient 'weight'");
    expect(error_of([&] { set.ready(0); }), "is a wait() missing");
    expect(error_of([&] { set.wait(); }), "wait() before ready() for 'bias'");
    expect(error_of([&] { set.ready(2); }), "no gradient has the index 2; set 'model' has 2");
    expect(error_of([&] { set.view(2); }), "index");
    expect(error_of([&] { set.ready_at(1, set.view(0).data); }), "gradient 'bias' of set 'model'");
    set.ready_at(1, set.view(1).data);
    set.wait();
    set.ready(1);
    set.ready(0);
    set.wait();
    set.absent(0);
    expect(error_of([&] { set.absent(0); }), "absent() was called twice for gradient 'weight'");
    expect(error_of([&] { set.ready(0); }), "both called for gradient 'weight'");
    expect(error_of([&] { set.absent(2); }), "index");
    expect(error_of([&] { set.wait(); }), "wait() before ready() for 'bias'");
    set.ready(1);
    expect(error_of([&] { set.absent(1); }), "both called for gradient 'bias'");
    expect(error_of([&] { set.set_samples(4); }), "between wait() and the next ready()");
    set.wait();
    expect(error_of([&] { set.set_samples(4); }), "whose divisor is samples");

    GradientSet weighted = runtime.register_gradients(
        "weighted", {{.name = "weight", .shape = {3}}}, {.divisor = Divisor::kSamples});
    expect(error_of([&] { weighted.ready(0); }), "set_samples() before");
    expect(error_of([&] { weighted.set_samples(-1); }), "-1 samples");
    expect(error_of([&] { weighted.ready(1); }), "index");
    weighted.set_samples(runtime.rank() == 0 ? 3 : 1);
    for (int iteration = 0; iteration < 2; ++iteration) {
      auto* const values = static_cast<float*>(weighted.view(0).data);
      std::fill_n(values, 3, runtime.rank() == 0 ? 4.0F : 8.0F);
      weighted.ready(0);
      expect(error_of([&] { weighted.ready(0); }), "twice");
      weighted.wait();
      require(values[2] == 5.0F, "the mean of all samples");
    }

    std::vector<float> data(4);
    expect(error_of([&] {
             runtime.all_reduce("x", {nullptr, 4, DType::kFloat32}).wait();
           }),
           "null");
    expect(error_of([&] { runtime.broadcast("x", view(data), 2).wait(); }), "root");
    expect(error_of([&] { runtime.register_gradients("none", {}); }), "at least one");
    all_reduce_works(runtime, "x");
  });
}

TEST(RuntimeMisuse, ASetThatWasRegisteredAgainIsOfNoUse) {
  RuntimeJob(2, test_options()).run([](Runtime& runtime) {
    GradientSet former = runtime.register_gradients("model", {{.name = "g", .shape = {3}}});
    GradientSet set = runtime.register_gradients("model", {{.name = "g", .shape = {5}}});
    require(error_of([&] { former.ready(0); }).find("replaced by a later registration") !=
                std::string::npos,
            "the former set still works");
    auto* values = static_cast<float*>(set.view(0).data);
    std::fill_n(values, 5, static_cast<float>(2 * runtime.rank()));
    set.ready(0);
    set.wait();
    require(values[4] == 1.0F, "average");
  });
}

}  // namespace
}  // namespace kolo::test
