// Tests whole ranks with devices: engine threads, device streams that are threads, and a user's
// thread with a stream. ThreadSanitizer thus sees all synchronisation between them.

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <stdexcept>

#include "runtime/engine/connect.h"
#include "runtime/engine/engine.h"
#include "runtime/message/message_calls.h"
#include "runtime/wait/progress_engine.h"
#include "tests/support/device/host_communicator.h"
#include "tests/support/device/host_device.h"
#include "tests/support/device/host_stream.h"
#include "tests/support/lone_engine.h"
#include "tests/support/memory_rendezvous.h"
#include "tests/support/rank_harness.h"

namespace kolo {
namespace {

constexpr int kRanks = 3;
constexpr int kIterations = 20;
constexpr std::size_t kGradients = 4;
constexpr std::size_t kCount = 1000;
constexpr std::chrono::seconds kLimit{60};

/// One rank of the job: the members of Runtime, with a device in host memory.
class DeviceRank {
 public:
  DeviceRank(Rendezvous& rendezvous, HostCommunicatorHub& hub)
      : connection_(connect(rendezvous, kOptions)),
        device_context_{.device = std::make_unique<HostDevice>(),
                        .node = nullptr,
                        .world = nullptr,
                        .connector = nullptr},
        stream_(device_context_.device->make_stream()) {
    device_context_.world = hub.group(rank(), *device_context_.device);
    engine_ = std::make_unique<Engine>(
        *connection_.transport, connection_.grid, EngineClocks{clock_, clock_}, kOptions,
        connection_.calibration, connection_.limits, &device_context_);
    lone_ = std::make_unique<test::LoneEngine>(*engine_, *connection_.transport, connection_.grid,
                                               EngineClocks{clock_, clock_});
    progress_engine_ =
        std::make_unique<ProgressEngine>(lone_->engines(), *connection_.transport, WaitPolicy{});
    thread_ = std::make_unique<EngineThread>(*progress_engine_);
  }

  int rank() const { return connection_.transport->rank(); }
  HostStream& stream() { return as_host(*stream_); }
  Device& device() { return *device_context_.device; }

  /// All gradients but the last have this compression.
  std::shared_ptr<GradientSetState> register_gradients(const std::string& compression) {
    std::vector<GradientSpec> specs;
    for (std::size_t i = 0; i < kGradients; ++i) {
      specs.push_back(
          {.name = "g" + std::to_string(i), .shape = {kCount}, .memory = MemoryKind::kDevice});
      if (i + 1 < kGradients) specs.back().compression = compression;
    }
    auto set = std::make_shared<GradientSetState>("model", specs, GradientOptions{});
    engine_->submit(set);
    set->registration().wait(kLimit, progress_engine_.get());
    return set;
  }

  void ready(GradientSetState& set, std::size_t gradient) {
    const auto bucket = set.iterations().mark(gradient, {&stream()});
    if (!bucket) return;
    engine_->submit(set, bucket->index);
    progress_engine_->attend(ProgressEngine::Next::kUnknown);
  }

  bool wait(GradientSetState& set) { return set.iterations().wait(kLimit, progress_engine_.get()); }
  bool wait_on_stream(GradientSetState& set) {
    return set.iterations().wait(kLimit, {&stream()}, progress_engine_.get());
  }

  /// Starts an operation after the work enqueued on the user's stream.
  std::shared_ptr<TicketState> begin(Operation operation) {
    operation.ready = stream_so_far();
    auto shared = std::make_shared<Operation>(std::move(operation));
    engine_->submit(shared);
    return shared->ticket;
  }
  void run(Operation operation) {
    begin(std::move(operation))->wait(kLimit, progress_engine_.get());
  }
  /// Makes a stream wait for an operation.
  bool order(TicketState& ticket, HostStream& stream) {
    return ticket.order_at_most(kLimit, {&stream}, progress_engine_.get());
  }
  /// Starts a message after the work enqueued on the user's stream.
  std::shared_ptr<MessageCall> start(Message::Kind kind, const BufferView& buffer, int peer) {
    auto call = std::make_shared<MessageCall>();
    call->kind = kind;
    call->peer = peer;
    call->buffer = buffer;
    call->ready = stream_so_far();
    engine_->submit(std::shared_ptr<Message>(call));
    return call;
  }
  void finish(MessageCall& call) { call.wait(kLimit, progress_engine_.get()); }

  void close() {
    auto operation = std::make_shared<Operation>(Operation{.kind = OperationKind::kClose});
    engine_->submit(operation);
    operation->ticket->wait(kLimit, progress_engine_.get());
  }

 private:
  std::shared_ptr<const Event> stream_so_far() {
    std::shared_ptr<Event> event = device().make_event();
    stream().record(*event);
    return event;
  }

  inline static const Options kOptions{.device_fusion_bytes = 2 * kCount * sizeof(float),
                                       .device_chunk_bytes = 4096,
                                       .arena_bytes = std::size_t{1} << 20,
                                       .node_id = "a"};
  const SteadyClock clock_;
  Connection connection_;
  DeviceContext device_context_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<test::LoneEngine> lone_;
  std::unique_ptr<ProgressEngine> progress_engine_;
  std::unique_ptr<EngineThread> thread_;
};

/// Streams write gradients and use their averages.
void average_gradients(const std::string& compression) {
  auto endpoints = make_memory_rendezvous(kRanks, kLimit);
  HostCommunicatorHub hub({0, 1, 2});
  test::run_ranks(kRanks, [&](const test::RankRun& run) {
    DeviceRank rank(*endpoints[static_cast<std::size_t>(run.rank())], hub);
    const auto set = rank.register_gradients(compression);
    std::vector<float> results(kIterations, 0.0F);
    for (int iteration = 0; iteration < kIterations; ++iteration) {
      for (std::size_t gradient = kGradients; gradient-- > 0;) {
        rank.stream().enqueue([view = set->view(gradient), value = run.rank() + iteration] {
          auto* values = static_cast<float*>(view.data);
          std::fill(values, values + view.count, static_cast<float>(value));
          return true;
        });
        rank.ready(*set, gradient);
      }
      if (iteration % 3 == 0) {
        if (!rank.wait(*set)) throw std::runtime_error("not combined in time");
      } else if (!rank.wait_on_stream(*set)) {
        throw std::runtime_error("not enqueued in time");
      }
      rank.stream().enqueue(
          [view = set->view(0), &result = results[static_cast<std::size_t>(iteration)]] {
            result = static_cast<const float*>(view.data)[kCount - 1];
            return true;
          });
    }
    const auto end = rank.device().make_event();
    rank.stream().record(*end);
    run.poll_until([] { return false; }, [&] { return end->done(); });
    rank.close();
    for (int iteration = 0; iteration < kIterations; ++iteration) {
      // The expected result is the mean of 0, 1 and 2, plus the iteration.
      const float result = results[static_cast<std::size_t>(iteration)];
      if (result != static_cast<float>(iteration + 1)) {
        throw std::runtime_error("iteration " + std::to_string(iteration) + " gave " +
                                 std::to_string(result));
      }
    }
  });
}

TEST(DeviceThreads, StreamsComputeReduceAndUseTheResult) { average_gradients(""); }

// At density one, averages are those of dense gradients, in dense and in sparse steps.
TEST(DeviceThreads, StreamsComputeAndUseTheResultOfPairs) {
  average_gradients("topk(1,fp32,warmup=5,rule=lossless,route=owners)");
}

// Device collectives use the parts of all ranks. A message then passes through pinned memory.
TEST(DeviceThreads, BuffersTravelBehindTheirStreams) {
  auto endpoints = make_memory_rendezvous(kRanks, kLimit);
  HostCommunicatorHub hub({0, 1, 2});
  test::run_ranks(kRanks, [&](const test::RankRun& run) {
    DeviceRank rank(*endpoints[static_cast<std::size_t>(run.rank())], hub);
    const auto allocate = [&](std::size_t count) {
      return rank.device().allocate(count * sizeof(float), MemoryKind::kDevice);
    };
    const DeviceMemory part = allocate(kCount), all = allocate(kRanks * kCount),
                       received = allocate(kCount);
    const auto view = [](const DeviceMemory& memory) {
      return BufferView{memory.data(), memory.bytes() / sizeof(float), DType::kFloat32,
                        MemoryKind::kDevice};
    };
    const auto check_all = [&](const DeviceMemory& memory, std::size_t first, int value) {
      const auto* const values = reinterpret_cast<const float*>(memory.data()) + first;
      for (std::size_t i = 0; i < kCount; ++i) {
        if (values[i] == static_cast<float>(value)) continue;
        throw std::runtime_error("element " + std::to_string(i) + " is " +
                                 std::to_string(values[i]));
      }
    };
    for (int iteration = 0; iteration < kIterations; ++iteration) {
      rank.stream().enqueue([memory = view(part), value = run.rank() + iteration] {
        std::fill_n(static_cast<float*>(memory.data), memory.count, static_cast<float>(value));
        return true;
      });
      rank.run({.kind = OperationKind::kAllGather,
                .name = "parts",
                .memory = MemoryKind::kDevice,
                .tensors = {{.input = part.data(), .result = all.data(), .count = kCount}},
                .out_of_place = true});
      for (int other = 0; other < kRanks; ++other) {
        check_all(all, static_cast<std::size_t>(other) * kCount, other + iteration);
      }
      const int before = (run.rank() + kRanks - 1) % kRanks;
      const auto receive = rank.start(Message::Kind::kReceive, view(received), before);
      const auto send = rank.start(Message::Kind::kSend, view(part), (run.rank() + 1) % kRanks);
      rank.finish(*send);
      rank.finish(*receive);
      check_all(received, 0, before + iteration);
    }
    rank.close();
  });
}

// The stream of the operation does not advance until another stream waits for the operation.
TEST(DeviceThreads, AStreamWaitsForAnOperationInFlight) {
  auto endpoints = make_memory_rendezvous(kRanks, kLimit);
  HostCommunicatorHub hub({0, 1, 2});
  test::run_ranks(kRanks, [&](const test::RankRun& run) {
    DeviceRank rank(*endpoints[static_cast<std::size_t>(run.rank())], hub);
    const auto other = rank.device().make_stream();
    for (int iteration = 0; iteration < kIterations; ++iteration) {
      std::vector<float> sums(kCount, static_cast<float>(run.rank() + iteration));
      std::vector<float> seen(kCount);
      std::atomic<bool> gate{false};
      rank.stream().enqueue([&gate] { return gate.load(); });
      const auto ticket = rank.begin({.kind = OperationKind::kAllReduce,
                                      .name = "x",
                                      .memory = MemoryKind::kDevice,
                                      .tensors = {{.result = sums.data(), .count = kCount}}});
      if (!rank.order(*ticket, as_host(*other))) throw std::runtime_error("not enqueued in time");
      if (ticket->done()) throw std::runtime_error("it is done before its input");
      as_host(*other).enqueue([&sums, &seen] {
        std::memcpy(seen.data(), sums.data(), kCount * sizeof(float));
        return true;
      });
      const auto end = rank.device().make_event();
      other->record(*end);
      gate = true;
      run.poll_until([] { return false; }, [&] { return end->done(); });
      ticket->wait(kLimit);
      if (seen != std::vector<float>(kCount, static_cast<float>(3 + 3 * iteration))) {
        throw std::runtime_error("element 0 is " + std::to_string(seen[0]));
      }
      if (!rank.order(*ticket, as_host(*other))) throw std::runtime_error("it is done");
    }
    rank.close();
  });
}

TEST(TicketState, IsEnqueuedOnceItIsDone) {
  TicketState ticket;
  EXPECT_FALSE(ticket.is_enqueued());
  EXPECT_FALSE(ticket.order_at_most(std::chrono::milliseconds(0), {}, nullptr));
  pollfd news{.fd = ticket.enqueued_event(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&news, 1, 0), 0);
  EXPECT_TRUE(ticket.is_watched());
  ticket.fail({.code = ErrorCode::kPeerLost, .what = "gone"});
  EXPECT_EQ(::poll(&news, 1, 0), 1);
  EXPECT_THROW(ticket.order_at_most(kLimit, {}, nullptr), KoloError);
}

TEST(TicketState, GivesStreamsTheEventOfItsWork) {
  SeededHostDevice device(1);
  const auto work = device.make_stream(), other = device.make_stream();
  const auto end = device.make_event(), seen = device.make_event();
  bool gate = false;
  as_host(*work).enqueue([&gate] { return gate; });
  work->record(*end);
  TicketState ticket;
  pollfd news{.fd = ticket.enqueued_event(), .events = POLLIN, .revents = 0};
  ticket.enqueued(device, *end);
  EXPECT_EQ(::poll(&news, 1, 0), 1);
  EXPECT_FALSE(ticket.done());
  EXPECT_TRUE(ticket.order_at_most(std::chrono::milliseconds(0), {&as_host(*other)}, nullptr));
  other->record(*seen);
  device.settle();
  EXPECT_FALSE(seen->done());
  gate = true;
  device.settle();
  EXPECT_TRUE(seen->done());
}

}  // namespace
}  // namespace kolo
