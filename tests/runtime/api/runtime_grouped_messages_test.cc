// Several tensors as one message between whole runtimes, one per thread.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "tests/runtime/api/runtime_calls.h"

namespace kolo::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Tensors of three dtypes, one of which is empty.
struct ThreeTensors {
  explicit ThreeTensors(std::size_t count) : floats(count), bytes(count + 3) {}

  /// Those that `rank` sends.
  static ThreeTensors of(int rank, std::size_t count) {
    ThreeTensors tensors(count);
    for (std::size_t i = 0; i < count; ++i) {
      tensors.floats[i] = static_cast<float>((i + static_cast<std::size_t>(rank)) % 1000);
    }
    for (std::size_t i = 0; i < tensors.bytes.size(); ++i) {
      tensors.bytes[i] = static_cast<std::uint8_t>(i * 3 + static_cast<std::size_t>(rank));
    }
    return tensors;
  }

  std::vector<BufferView> views() {
    return {view(floats), {nullptr, 0, DType::kInt64}, {bytes.data(), bytes.size(), DType::kUInt8}};
  }
  std::size_t count() const { return floats.size() + bytes.size(); }
  friend bool operator==(const ThreeTensors&, const ThreeTensors&) = default;

  std::vector<float> floats;
  std::vector<std::uint8_t> bytes;
};

void require_tensors(const ThreeTensors& got, const Received& received) {
  const std::string from = "from rank " + std::to_string(received.source);
  require(received.count == got.count(), "count " + from);
  require(got == ThreeTensors::of(received.source, got.floats.size()), "values " + from);
}

/// Tensors of few bytes, which travel with the offer, and of many.
constexpr std::size_t kTensorCounts[] = {0, 1, 1000, 100'000};

class RuntimeGroupedMessages : public testing::TestWithParam<int> {};

TEST_P(RuntimeGroupedMessages, GoAroundARing) {
  RuntimeJob(GetParam(), test_options()).run([](Runtime& runtime) {
    const int n = runtime.world_size();
    const int next = (runtime.rank() + 1) % n, previous = (runtime.rank() + n - 1) % n;
    for (int round = 0; round < 10; ++round) {
      for (const std::size_t count : kTensorCounts) {
        ThreeTensors out = ThreeTensors::of(runtime.rank(), count), in(count);
        Ticket sent = runtime.send(out.views(), next, count);
        const Received received =
            runtime.recv(in.views(), round % 2 == 0 ? previous : kAnyRank, count).received();
        require(received.source == previous, "source");
        require_tensors(in, received);
        sent.wait();
      }
    }
    all_reduce_works(runtime, "beside grouped messages");
  });
}

TEST_P(RuntimeGroupedMessages, BlockingSendsMeetReceivesInTheBackground) {
  RuntimeJob(GetParam(), test_options()).run([](Runtime& runtime) {
    const int n = runtime.world_size();
    for (const std::size_t count : kTensorCounts) {
      std::vector<ThreeTensors> in(static_cast<std::size_t>(n), ThreeTensors(count));
      std::vector<Ticket> receives;
      for (ThreeTensors& each : in) receives.push_back(runtime.recv(each.views(), kAnyRank));
      ThreeTensors out = ThreeTensors::of(runtime.rank(), count);
      for (int peer = 0; peer < n; ++peer) runtime.send(out.views(), peer).wait();
      std::vector<int> sources;
      for (std::size_t i = 0; i < in.size(); ++i) {
        require_tensors(in[i], receives[i].received());
        sources.push_back(receives[i].received().source);
      }
      std::ranges::sort(sources);
      require(std::ranges::adjacent_find(sources) == sources.end(), "one message of each rank");
      runtime.barrier().wait();
    }
  });
}

TEST_P(RuntimeGroupedMessages, DifferencesFailOnBothSidesAndHarmNothingElse) {
  const int last = GetParam() - 1;
  Texts texts(GetParam());
  RuntimeJob(GetParam(), test_options()).run([&](Runtime& runtime) {
    ThreeTensors tensors = ThreeTensors::of(0, 10'000), in(10'000);
    if (runtime.rank() == 0) {
      texts.set(0, error_of([&] { runtime.send(tensors.views(), last, 3).wait(); }));
      runtime.send(tensors.views(), last, 3).wait();
    }
    if (runtime.rank() == last) {
      std::vector<BufferView> fewer = in.views();
      fewer[2].count = 7;
      texts.set(last, error_of([&] { runtime.recv(fewer, 0, 3).wait(); }));
      require_tensors(in, runtime.recv(in.views(), 0, 3).received());
    }
    all_reduce_works(runtime, "after an error");
  });
  EXPECT_EQ(texts.all().front(), texts.all().back());
  EXPECT_THAT(texts.all().front(),
              AllOf(HasSubstr("mismatch: "),
                    HasSubstr("rank 0 sends float32 [10000] + int64 [0] + uint8 [10003] with tag 3 "
                              "to rank " +
                              std::to_string(last) +
                              ", which receives float32 [10000] + int64 [0] + uint8 [7]")));
}

INSTANTIATE_TEST_SUITE_P(Ranks, RuntimeGroupedMessages, testing::Values(2, 3));

// In both directions, and also into a longer buffer.
TEST(RuntimeGroupedMessage, AListOfOneTensorIsAPlainMessage) {
  RuntimeJob(2, test_options()).run([](Runtime& runtime) {
    for (const std::size_t count : kTensorCounts) {
      std::vector<float> out = ThreeTensors::of(0, count).floats, in(count + 2, -1.0F);
      const std::vector<BufferView> list_out = {view(out)}, list_in = {view(in)};
      if (runtime.rank() == 0) {
        runtime.send(list_out, 1).wait();
        runtime.send(view(out), 1).wait();
        continue;
      }
      for (const bool receives_list : {false, true}) {
        std::ranges::fill(in, -1.0F);
        const Received received =
            (receives_list ? runtime.recv(list_in, 0) : runtime.recv(view(in), 0)).received();
        require(received.count == count, "count");
        require(std::ranges::equal(out, std::span(in).first(count)), "values");
        require(in[count] == -1.0F, "nothing behind the message");
      }
    }
  });
}

TEST(RuntimeGroupedMessage, AReceiveThatTookTooLongIsWithdrawn) {
  Options options = test_options();
  options.operation_timeout = std::chrono::milliseconds(500);
  std::atomic<int> late{0}, there{0};
  run_ranks(2, [&, job = std::make_shared<RuntimeJob>(2, options)](const RankRun& run) {
    Runtime runtime = job->join(run.rank());
    ThreeTensors out = ThreeTensors::of(1, 20'000), never(20'000), in(20'000);
    if (run.rank() == 0) {
      EXPECT_THAT(error_of([&] { runtime.recv(never.views(), 1, 4).wait(); }),
                  AllOf(HasSubstr("time-out"), HasSubstr("a receive from rank 1 with tag 4")));
      Ticket cancelled = runtime.recv(never.views(), kAnyRank, 4);
      Ticket received = runtime.recv(in.views(), 1, 4);
      cancelled.cancel();
      EXPECT_THAT(error_of([&] { cancelled.wait(); }), HasSubstr("cancelled: "));
      meet(run, late);
      require_tensors(in, received.received());
      EXPECT_TRUE(never == ThreeTensors(20'000));
    } else {
      meet(run, late);
      runtime.send(out.views(), 0, 4).wait();
    }
    meet(run, there);
  });
}

TEST(RuntimeGroupedMessage, MisuseIsRefusedAtTheCall) {
  RuntimeJob(2, test_options()).run([](Runtime& runtime) {
    ThreeTensors tensors(4);
    std::vector<BufferView> null = tensors.views(), mixed = tensors.views();
    null[1].count = 2;
    mixed[2].memory = MemoryKind::kDevice;
    std::vector<BufferView> on_device = tensors.views();
    for (BufferView& each : on_device) each.memory = MemoryKind::kDevice;
    EXPECT_THAT(error_of([&] { runtime.send(std::vector<BufferView>(), 0).wait(); }),
                HasSubstr("send: there are no tensors"));
    EXPECT_THAT(error_of([&] { runtime.recv(null, 0).wait(); }),
                HasSubstr("recv: buffer 1 is null"));
    EXPECT_THAT(error_of([&] { runtime.send(mixed, 0).wait(); }),
                HasSubstr("buffer 2 is in device memory and buffer 0 in host memory"));
    EXPECT_THAT(error_of([&] { runtime.recv(on_device, 0).wait(); }),
                HasSubstr("set the option `device`"));
    EXPECT_THAT(error_of([&] { runtime.send(tensors.views(), 2).wait(); }),
                HasSubstr("send: the peer 2 is not a rank"));
    all_reduce_works(runtime, "after misuse");
  });
}

}  // namespace
}  // namespace kolo::test
