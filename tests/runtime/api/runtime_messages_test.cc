// Tests messages between whole runtimes, with one thread per rank.

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/runtime/api/runtime_calls.h"

namespace kolo::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<float> values_of(int rank, std::size_t count) {
  std::vector<float> data(count);
  for (std::size_t i = 0; i < count; ++i) {
    data[i] = static_cast<float>((i + static_cast<std::size_t>(rank) * 31) % 1000);
  }
  return data;
}

void require_values(const std::vector<float>& data, const Received& received, std::size_t count) {
  require(received.count == count, "count " + std::to_string(received.count));
  require(
      std::ranges::equal(values_of(received.source, count), std::span(data).first(received.count)),
      "values from rank " + std::to_string(received.source));
}

class RuntimeMessages : public testing::TestWithParam<int> {};

TEST_P(RuntimeMessages, GoAroundARing) {
  RuntimeJob(GetParam(), test_options()).run([](Runtime& runtime) {
    const int n = runtime.world_size();
    const int next = (runtime.rank() + 1) % n, previous = (runtime.rank() + n - 1) % n;
    for (int round = 0; round < 20; ++round) {
      for (const std::size_t count : std::initializer_list<std::size_t>{0, 1, 1000, 100'000}) {
        std::vector<float> out = values_of(runtime.rank(), count), in(count + 1);
        Ticket sent = runtime.send(view(out), next, count);
        require_values(in, runtime.recv(view(in), previous, count).received(), count);
        sent.wait();
      }
    }
    require(runtime.network_bytes_sent() == 0, "one node has no network");
  });
}

TEST_P(RuntimeMessages, ArriveWhileNobodyWaits) {
  std::atomic<int> there{0};
  run_ranks(GetParam(), [&, job = std::make_shared<RuntimeJob>(GetParam(), test_options())](
                            const RankRun& run) {
    Runtime runtime = job->join(run.rank());
    const int n = runtime.world_size();
    std::vector<float> out = values_of(runtime.rank(), 300'000), in(out.size());
    Ticket received = runtime.recv(view(in), kAnyRank);
    Ticket sent = runtime.send(view(out), (runtime.rank() + 1) % n);
    run.poll_until([] { return false; }, [&] { return received.done() && sent.done(); });
    require_values(in, received.received(), out.size());
    sent.wait();
    meet(run, there);
  });
}

// Each thread and round has a separate tag.
TEST_P(RuntimeMessages, SeveralThreadsSendAndReceive) {
  RuntimeJob(GetParam(), test_options()).run([](Runtime& runtime) {
    const auto ranks = static_cast<std::size_t>(runtime.world_size());
    run_ranks(3, [&](const RankRun& thread) {
      const auto tag = static_cast<std::uint64_t>(thread.rank());
      for (std::size_t round = 0; round < 5; ++round) {
        const std::size_t count = 1 + round * 1500;
        std::vector<float> out = values_of(runtime.rank(), count);
        std::vector<Ticket> sent;
        for (std::size_t peer = 0; peer < ranks; ++peer) {
          sent.push_back(runtime.send(view(out), static_cast<int>(peer), tag + 3 * round));
        }
        for (std::size_t i = 0; i < ranks; ++i) {
          std::vector<float> in(count);
          require_values(in, runtime.recv(view(in), kAnyRank, tag + 3 * round).received(), count);
        }
        for (Ticket& ticket : sent) ticket.wait();
      }
      all_reduce_works(runtime, "beside messages " + std::to_string(tag));
    });
  });
}

TEST_P(RuntimeMessages, ReachTheirOwnRank) {
  RuntimeJob(GetParam(), test_options()).run([](Runtime& runtime) {
    for (const std::size_t count : std::initializer_list<std::size_t>{0, 7, 500'000}) {
      std::vector<float> out = values_of(runtime.rank(), count), in(count);
      Ticket received = runtime.recv(view(in), runtime.rank());
      runtime.send(view(out), runtime.rank()).wait();
      require_values(in, received.received(), count);
    }
  });
}

TEST_P(RuntimeMessages, ErrorsReachBothSidesAndHarmNothingElse) {
  const int last = GetParam() - 1;
  Texts texts(GetParam());
  RuntimeJob(GetParam(), test_options()).run([&](Runtime& runtime) {
    std::vector<float> data(10'000), few(10);
    if (runtime.rank() == 0) {
      texts.set(0, error_of([&] { runtime.send(view(data), last, 3).wait(); }));
    }
    if (runtime.rank() == last) {
      const std::string text = error_of([&] { runtime.recv(view(few), 0, 3).wait(); });
      if (last != 0) texts.set(last, text);
    }
    all_reduce_works(runtime, "after an error");
  });
  EXPECT_EQ(texts.all().front(), texts.all().back());
  EXPECT_THAT(
      texts.all().front(),
      AllOf(HasSubstr("mismatch: "), HasSubstr("rank 0 sends 10000 elements of float32"),
            HasSubstr("with tag 3 to rank " + std::to_string(last) + ", whose buffer holds 10")));
}

INSTANTIATE_TEST_SUITE_P(Ranks, RuntimeMessages, testing::Values(2, 3));

TEST(RuntimeMessage, AWaitThatTakesTooLongNamesPeerAndTag) {
  Options options = test_options();
  options.operation_timeout = std::chrono::milliseconds(100);
  std::vector<float> never(4);
  std::vector<float> large(100'000);
  std::atomic<int> there{0};
  run_ranks(2, [&, job = std::make_shared<RuntimeJob>(2, options)](const RankRun& run) {
    Runtime runtime = job->join(run.rank());
    if (run.rank() == 0) {
      EXPECT_THAT(error_of([&] { runtime.recv(view(never), 1, 42).wait(); }),
                  AllOf(HasSubstr("time-out"), HasSubstr("a receive from rank 1 with tag 42")));
      EXPECT_THAT(error_of([&] { runtime.recv(view(never), kAnyRank, 43).wait(); }),
                  AllOf(HasSubstr("time-out"), HasSubstr("a receive from any rank with tag 43")));
      EXPECT_THAT(error_of([&] { runtime.send(view(large), 1, 44).wait(); }),
                  AllOf(HasSubstr("time-out"), HasSubstr("a send to rank 1 with tag 44")));
    }
    meet(run, there);
  });
}

// A receive that has timed out must not receive the next message.
TEST(RuntimeMessage, AReceiveThatTookTooLongIsWithdrawn) {
  Options options = test_options();
  options.operation_timeout = std::chrono::milliseconds(500);
  std::atomic<int> late{0}, there{0};
  run_ranks(2, [&, job = std::make_shared<RuntimeJob>(2, options)](const RankRun& run) {
    Runtime runtime = job->join(run.rank());
    std::vector<float> out = values_of(1, 50'000), never(out.size(), -1), in(out.size());
    if (run.rank() == 0) {
      EXPECT_THAT(error_of([&] { runtime.recv(view(never), 1).wait(); }), HasSubstr("time-out"));
      Ticket received = runtime.recv(view(in), 1);
      meet(run, late);
      require_values(in, received.received(), in.size());
      EXPECT_EQ(never.front(), -1);
    } else {
      meet(run, late);
      runtime.send(view(out), 0).wait();
    }
    meet(run, there);
  });
}

// A cancelled receive receives no message, and its memory is not written.
TEST(RuntimeMessage, AReceiveIsTakenBack) {
  std::atomic<int> late{0}, there{0};
  run_ranks(2, [&, job = std::make_shared<RuntimeJob>(2, test_options())](const RankRun& run) {
    Runtime runtime = job->join(run.rank());
    std::vector<float> out = values_of(1, 50'000), never(out.size(), -1), in(out.size());
    if (run.rank() == 0) {
      Ticket cancelled = runtime.recv(view(never), kAnyRank, 7);
      Ticket received = runtime.recv(view(in), 1, 7);
      cancelled.cancel();
      EXPECT_THAT(error_of([&] { cancelled.wait(); }),
                  AllOf(HasSubstr("cancelled: "), HasSubstr("a receive from any rank with tag 7")));
      EXPECT_TRUE(cancelled.done());
      cancelled.cancel();
      meet(run, late);
      require_values(in, received.received(), in.size());
      received.cancel();  // too late: the received message stays
      require_values(in, received.received(), in.size());
      EXPECT_EQ(never.front(), -1);
    } else {
      meet(run, late);
      runtime.send(view(out), 0, 7).wait();
    }
    meet(run, there);
  });
}

// Either the receive has the message, or it is cancelled and the next receive has the message.
TEST(RuntimeMessage, AReceiveIsTakenBackOrHasItsMessage) {
  RuntimeJob(2, test_options()).run([](Runtime& runtime) {
    for (const std::size_t count : std::initializer_list<std::size_t>{1, 100'000}) {
      const std::vector<float> out = values_of(1, count);
      for (int round = 0; round < 40; ++round) {
        std::vector<float> first(count, -1), second(count, -1);
        runtime.barrier().wait();
        if (runtime.rank() == 1) {
          std::vector<float> sent = out;
          runtime.send(view(sent), 0).wait();
          continue;
        }
        Ticket receive = runtime.recv(view(first), 1);
        for (int spin = 0; spin < 50 * (round % 20); ++spin) std::this_thread::yield();
        receive.cancel();
        if (error_of([&] { receive.wait(); }).empty()) {
          require_values(first, receive.received(), count);
        } else {
          require_values(second, runtime.recv(view(second), 1).received(), count);
          require(first[0] == -1, "a message for a receive that was taken back");
        }
      }
    }
  });
}

// One thread waits and another thread cancels, while the job ends.
TEST(RuntimeMessage, TakingBackMayMeetTheEndOfTheJob) {
  for (int round = 0; round < 20; ++round) {
    RuntimeJob(2, test_options()).run([](Runtime& runtime) {
      std::vector<float> data(4);
      Ticket receive = runtime.recv(view(data), 1 - runtime.rank());
      std::thread other([&] { receive.cancel(); });
      runtime.close();
      other.join();
      require(!error_of([&] { receive.wait(); }).empty(), "an error");
    });
  }
}

TEST(RuntimeMessage, MisuseIsRefusedAtTheCall) {
  RuntimeJob(2, test_options()).run([](Runtime& runtime) {
    std::vector<float> data(4);
    BufferView on_device = view(data), null = view(data);
    on_device.memory = MemoryKind::kDevice;
    null.data = nullptr;
    EXPECT_THAT(error_of([&] { runtime.send(view(data), 2).wait(); }),
                HasSubstr("send: the peer 2 is not a rank"));
    EXPECT_THAT(error_of([&] { runtime.send(view(data), kAnyRank).wait(); }),
                HasSubstr("peer -1 is not a rank"));
    EXPECT_THAT(error_of([&] { runtime.recv(view(data), -2).wait(); }), HasSubstr("not kAnyRank"));
    EXPECT_THAT(error_of([&] { runtime.recv(on_device, 0).wait(); }),
                HasSubstr("set the option `device`"));
    EXPECT_THAT(error_of([&] { runtime.send(null, 0).wait(); }), HasSubstr("is null"));
    all_reduce_works(runtime, "after misuse");
  });
}

TEST(RuntimeMessage, IsNoCallAfterTheEnd) {
  RuntimeJob(2, test_options()).run([](Runtime& runtime) {
    std::vector<float> data(4);
    Ticket never = runtime.recv(view(data), 1 - runtime.rank());
    runtime.close();
    EXPECT_THAT(error_of([&] { never.wait(); }), HasSubstr("shutdown"));
    EXPECT_THAT(error_of([&] { runtime.send(view(data), 0).wait(); }), HasSubstr("shutdown"));
  });
}

// --- Several tensors ----------------------------------------------------------------------------

/// Tensors of three dtypes, one of them empty.
struct ThreeTensors {
  explicit ThreeTensors(std::size_t count) : floats(count), bytes(count + 3) {}

  /// Returns the tensors that `rank` sends.
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

/// Tensors with few bytes are sent with the offer; tensors with many bytes are sent later.
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

INSTANTIATE_TEST_SUITE_P(Ranks, RuntimeGroupedMessages, testing::Values(2, 3));

// The list may be sent or received, also into a longer buffer.
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
