// Tests waits for single gradients of a set, by a call and through a descriptor.

#include <gmock/gmock.h>
#include <poll.h>

#include <chrono>
#include <random>
#include <span>
#include <thread>

#include "comm/base/error.h"
#include "tests/support/device/host_stream.h"
#include "tests/support/engine_job.h"
#include "tests/support/node_shapes.h"

namespace kolo {
namespace {

using std::chrono::milliseconds;
using test::EngineJob;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr std::size_t kWaited = 6;  // Number of gradients.
constexpr milliseconds kAtOnce{1}, kWithoutEnd{0};

/// A set of six gradients: 0 and 1 share a bucket, as do 2 and 3, and 4 and 5.
class AwaitedSet {
 public:
  explicit AwaitedSet(const std::vector<int>& nodes, std::uint64_t seed = 1,
                      const GradientOptions& options = {.op = ReduceOp::kSum})
      : job_(ProcessGrid::with_node_sizes(nodes), {.fusion_bytes = 2 * 64 * sizeof(float)}, seed) {
    std::vector<GradientSpec> specs;
    for (std::size_t g = 0; g < kWaited; ++g) {
      specs.push_back({.name = "g" + std::to_string(g), .shape = {kElements}});
    }
    groups_ = job_.register_sets(specs, options);
  }

  EngineJob& job() { return job_; }
  GradientSetState& group(int rank) { return *groups_[static_cast<std::size_t>(rank)]; }

  void mark(int rank, std::size_t gradient, float value) {
    std::fill_n(values(rank, gradient), kElements, value);
    test::mark(job_.engine(rank), group(rank), gradient);
  }
  float value(int rank, std::size_t gradient) { return values(rank, gradient)[kElements - 1]; }

 private:
  static constexpr std::size_t kElements = 50;

  float* values(int rank, std::size_t gradient) {
    return static_cast<float*>(group(rank).view(gradient).data);
  }

  EngineJob job_;
  std::vector<std::shared_ptr<GradientSetState>> groups_;
};

/// Returns the text of the error that `call` throws, or an empty string.
template <typename Call>
std::string error_text(const Call& call) {
  try {
    call();
    return {};
  } catch (const KoloError& e) {
    return e.what();
  }
}

TEST(GradientWaits, EndWithTheBucketOfTheGradient) {
  for (const std::vector<int>& nodes : {std::vector<int>{2}, {1, 1}}) {
    SCOPED_TRACE(test::shape_text(nodes));
    AwaitedSet set(nodes);
    ASSERT_EQ(set.group(0).summary().buckets, 3u);
    for (int iteration = 1; iteration <= 3; ++iteration) {
      const auto sum = static_cast<float>(3 * iteration);
      for (std::size_t g = kWaited; g-- > 0;) set.mark(0, g, static_cast<float>(iteration));
      for (const std::size_t g : {2U, 3U}) set.mark(1, g, static_cast<float>(2 * iteration));
      set.job().poll(1000);
      EXPECT_TRUE(set.group(0).wait_for(3, kAtOnce));
      EXPECT_TRUE(set.group(0).wait_for(2, kAtOnce));
      EXPECT_EQ(set.value(0, 2), sum);
      EXPECT_EQ(set.value(0, 3), sum);
      for (const std::size_t g : {0U, 1U, 4U, 5U}) {
        EXPECT_FALSE(set.group(0).wait_for(g, kAtOnce)) << "gradient " << g;
      }
      EXPECT_FALSE(set.group(0).wait(kAtOnce)) << "others are under way";

      for (const std::size_t g : {5U, 4U, 1U, 0U})
        set.mark(1, g, static_cast<float>(2 * iteration));
      set.job().run_until_idle();
      for (int rank = 0; rank < 2; ++rank) {
        for (std::size_t g = 0; g < kWaited; ++g) {
          EXPECT_TRUE(set.group(rank).wait_for(g, kAtOnce)) << "gradient " << g;
          EXPECT_EQ(set.value(rank, g), sum) << "gradient " << g;
        }
        EXPECT_TRUE(set.group(rank).iterations().in_flight()) << "until wait() ends it";
        EXPECT_TRUE(set.group(rank).wait(kAtOnce));
      }
    }
  }
}

TEST(GradientWaits, AreForSetsWhoseGradientsAreAllMarked) {
  AwaitedSet set({1});
  EXPECT_THAT(error_text([&] { set.group(0).wait_for(kWaited, kAtOnce); }),
              HasSubstr("no gradient has the index"));
  for (std::size_t g = 2; g < kWaited; ++g) set.mark(0, g, 1);
  set.job().poll(100);
  EXPECT_THAT(error_text([&] { set.group(0).wait_for(3, kAtOnce); }),
              AllOf(HasSubstr("wait() before ready() for 'g0', 'g1' of set 'model'"),
                    Not(HasSubstr("'g3'"))));
  for (const std::size_t g : {1U, 0U}) set.mark(0, g, 1);
  set.job().run_until_idle();
  EXPECT_TRUE(set.group(0).wait_for(3, kAtOnce));
  EXPECT_TRUE(set.group(0).wait(kAtOnce));
}

// One thread already waits, and another begins to wait later.
TEST(GradientWaits, GetTheErrorOfTheSet) {
  AwaitedSet set({1, 1});
  for (std::size_t g = 0; g < kWaited; ++g) set.mark(0, g, 1);
  std::string text;
  std::thread waiting([&] { text = error_text([&] { set.group(0).wait_for(3, kWithoutEnd); }); });
  while (set.group(0).waiters() == 0) std::this_thread::yield();
  set.group(0).fail({.code = ErrorCode::kPeerLost, .what = "rank 1 went away"});
  waiting.join();
  EXPECT_THAT(text, HasSubstr("rank 1 went away"));
  EXPECT_THAT(error_text([&] { set.group(0).wait_for(0, kAtOnce); }),
              HasSubstr("rank 1 went away"));
}

bool is_raised(GradientSetState& group) {
  pollfd poll{.fd = group.iterations().event(), .events = POLLIN, .revents = 0};
  return ::poll(&poll, 1, 0) == 1;
}

TEST(GradientEvents, TellOfEachBucketThatIsOver) {
  for (const std::vector<int>& nodes : {std::vector<int>{2}, {1, 1}}) {
    SCOPED_TRACE(test::shape_text(nodes));
    AwaitedSet set(nodes);
    GradientSetState& group = set.group(0);
    for (int iteration = 1; iteration <= 3; ++iteration) {
      const auto value = static_cast<float>(iteration);
      for (const std::size_t g : {3U, 2U, 1U}) set.mark(0, g, value);
      set.job().poll(1000);
      EXPECT_FALSE(is_raised(group)) << "nothing is over";
      for (const std::size_t g : {2U, 3U}) set.mark(1, g, value);
      set.job().poll(1000);
      EXPECT_TRUE(is_raised(group));
      EXPECT_THAT(group.take_combined(), ElementsAre(2, 3)) << "others are not even marked";
      EXPECT_EQ(set.value(0, 2), 2 * value);
      EXPECT_FALSE(is_raised(group));
      EXPECT_THAT(group.take_combined(), IsEmpty());
      EXPECT_FALSE(group.is_watched()) << "this rank still computes";

      for (const std::size_t g : {5U, 4U, 0U}) set.mark(0, g, value);
      EXPECT_TRUE(group.is_watched());
      for (const std::size_t g : {5U, 4U, 1U, 0U}) set.mark(1, g, value);
      set.job().run_until_idle();
      EXPECT_TRUE(is_raised(group));
      // Indices that the program did not take are dropped at the end of their iteration.
      if (iteration != 2) {
        EXPECT_THAT(group.take_combined(), ElementsAre(0, 1, 4, 5));
      }
      EXPECT_TRUE(group.wait(kAtOnce));
      EXPECT_FALSE(is_raised(group) || group.is_watched());
      EXPECT_THAT(group.take_combined(), IsEmpty());
      EXPECT_TRUE(set.group(1).wait(kAtOnce));
    }
  }
}

TEST(GradientEvents, AreRaisedWhenTheyComeLate) {
  AwaitedSet set({2});
  for (const int rank : {0, 1}) {
    for (std::size_t g = 0; g < kWaited; ++g) set.mark(rank, g, 1);
  }
  set.job().run_until_idle();
  EXPECT_TRUE(is_raised(set.group(0)));
  EXPECT_THAT(set.group(0).take_combined(), ElementsAre(0, 1, 2, 3, 4, 5));
}

// The weights that divide gradients are complete when the last gradient is marked.
TEST(GradientEvents, TellOfGradientsThatAreDivided) {
  AwaitedSet set({2}, 1, {.op = ReduceOp::kAverage, .divisor = Divisor::kContributingRanks});
  ASSERT_FALSE(is_raised(set.group(0)));
  for (std::size_t g = kWaited; g-- > 0;) set.mark(0, g, 3);
  for (const std::size_t g : {5U, 4U, 3U}) set.mark(1, g, 5);
  set.job().poll(1000);
  EXPECT_THAT(set.group(0).take_combined(), IsEmpty());
  for (const std::size_t g : {2U, 1U, 0U}) {
    for (const auto& ready : {set.group(1).mark_absent(g), set.group(1).mark_weights()}) {
      if (ready) set.job().engine(1).submit(set.group(1), ready->index);
    }
  }
  set.job().run_until_idle();
  EXPECT_THAT(set.group(0).take_combined(), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(set.value(0, 3), 4);
  EXPECT_EQ(set.value(0, 2), 3) << "rank 1 has none";
  EXPECT_TRUE(set.group(0).wait(kAtOnce));
  EXPECT_EQ(set.value(0, 2), 3) << "divided once";
}

TEST(GradientEvents, StayRaisedOnceTheSetHasFailed) {
  AwaitedSet set({1, 1});
  EXPECT_FALSE(is_raised(set.group(0)));
  set.group(0).fail({.code = ErrorCode::kPeerLost, .what = "rank 1 went away"});
  set.group(1).fail({.code = ErrorCode::kPeerLost, .what = "rank 0 went away"});
  for (const int rank : {0, 1, 0}) {
    EXPECT_TRUE(is_raised(set.group(rank)));
    EXPECT_THAT(error_text([&] { set.group(rank).take_combined(); }), HasSubstr("went away"));
  }
}

// A thread sleeps until the driving thread has combined its gradient.
TEST(GradientWaits, AreWokenByTheThreadThatDrives) {
  AwaitedSet set({1, 1});
  for (std::size_t g = 0; g < kWaited; ++g) set.mark(0, g, 1);
  bool is_there = false;
  std::thread waiting([&] { is_there = set.group(0).wait_for(3, kWithoutEnd); });
  while (set.group(0).waiters() == 0) std::this_thread::yield();
  for (std::size_t g = kWaited; g-- > 0;) set.mark(1, g, 1);
  set.job().run_until_idle();
  waiting.join();
  EXPECT_TRUE(is_there);
  EXPECT_EQ(set.value(0, 3), 2);
  EXPECT_TRUE(set.group(0).wait(kAtOnce));
}

// The bucket in device memory is enqueued, and still runs when the wait ends.
TEST(GradientWaits, OnAStreamAreWokenByABucketInHostMemory) {
  SeededHostDevice device(1);
  const auto stream = device.make_stream();
  const auto end = device.make_event();
  const std::string name = "model";
  const std::vector<GradientSpec> gradients = {
      {.name = "on device", .shape = {4}, .memory = MemoryKind::kDevice},
      {.name = "on host", .shape = {4}}};
  const Plan plan = plan_buckets(gradients, {});
  std::vector<const Event*> finished(2);
  finished[plan.bucket_of[0]] = end.get();
  CompressedSet compressed;
  GradientEvents events;
  events.attach(device, gradients);
  events.plan(plan, finished);
  GradientIterations iterations(name, gradients, gradients.size(), compressed, events);
  iterations.plan(plan);
  iterations.begin();
  for (const std::size_t g : {0U, 1U}) {
    iterations.mark(g);
    iterations.bucket_started(plan.bucket_of[g]);
  }
  iterations.bucket_enqueued();
  bool is_enqueued = false;
  std::thread waiting(
      [&] { is_enqueued = iterations.wait(kWithoutEnd, NativeStream{&as_host(*stream)}); });
  while (iterations.waiters() == 0) std::this_thread::yield();
  iterations.bucket_finished(plan.bucket_of[1]);
  waiting.join();
  EXPECT_TRUE(is_enqueued);
  EXPECT_TRUE(iterations.in_flight());
  iterations.bucket_finished(plan.bucket_of[0]);
  EXPECT_FALSE(iterations.in_flight());
}

}  // namespace
}  // namespace kolo
