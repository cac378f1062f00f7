// Tests a call that is rejected while a peer writes its result.

#include <gmock/gmock.h>

#include <chrono>
#include <span>
#include <thread>

#include "comm/schedule/exposed_buffer.h"
#include "tests/support/engine_job.h"

namespace kolo {
namespace {

using test::EngineJob;
using test::error_of;
using test::view;

constexpr int kExposingRanks = 3, kExposingRoot = 1;

/// Accesses every range of `tensor`, in private memory of `rank`, that the rank has exposed.
std::vector<std::unique_ptr<ExposureAccess>> visit_exposures(EngineJob& job, int rank,
                                                             const std::vector<float>& tensor) {
  const std::span<std::byte> memory = job.transport(rank).memory(rank);
  std::vector<std::unique_ptr<ExposureAccess>> visits;
  for (std::size_t at = 0; at < memory.size(); at += kWireAlignment) {
    auto& note = *reinterpret_cast<ExposureNote*>(memory.data() + at);
    const bool is_note = note.origin == reinterpret_cast<std::int64_t>(tensor.data()) &&
                         note.is_private == 1 && note.writers == 0;
    if (is_note) visits.push_back(std::make_unique<ExposureAccess>(note));
  }
  return visits;
}

/// Rank 0 has begun a second broadcast. The test writes to its result instead of the root, which
/// has not begun it. The last rank calls another operation with this name, so all are rejected.
class RevokedExposures : public testing::Test {
 protected:
  RevokedExposures()
      : job_(ProcessGrid::with_node_sizes({kExposingRanks}), options(), 1, {}, wraps()) {
    std::vector<std::shared_ptr<Operation>> all;
    for (int rank = 0; rank < kExposingRanks; ++rank) all.push_back(broadcast(rank));
    job_.finish(all);
    first_ = broadcast(0);
    job_.poll(100);
    visits_ = visit_exposures(job_, 0, data_[0]);
    EXPECT_FALSE(visits_.empty());
    other_ = job_.submit(kExposingRanks - 1, test::all_reduce("x", data_[2]));
    for (const auto& operation : {first_, other_}) {
      waiting_.emplace_back([operation] {
        EXPECT_THROW(operation->ticket->wait(std::chrono::milliseconds(0)), KoloError);
      });
    }
    job_.run_until([&] { return other_->ticket->done(); }, std::chrono::milliseconds(1));
    job_.poll(1000);
  }
  ~RevokedExposures() override {
    for (std::thread& thread : waiting_) thread.join();
  }

  void expect_rejected() {
    EXPECT_THAT(error_of(*first_), testing::HasSubstr("submits 'x': all_reduce float32"));
  }

  EngineJob& job() { return job_; }
  const Operation& first() const { return *first_; }
  void end_visits() { visits_.clear(); }

 private:
  /// Returns options with which every size is exposed.
  static Options options() {
    Options options;
    options.link_costs = "memory_latency_us=0,private_read_us=0";
    return options;
  }
  static test::JobWraps wraps() {
    test::JobWraps wraps;
    wraps.opens_memory = true;
    return wraps;
  }
  std::shared_ptr<Operation> broadcast(int rank) {
    return job_.submit(rank,
                       {.kind = OperationKind::kBroadcast,
                        .name = "x",
                        .tensors = test::in_place(view(data_[static_cast<std::size_t>(rank)])),
                        .root = kExposingRoot});
  }

  std::vector<std::vector<float>> data_{kExposingRanks, std::vector<float>(30'000, 1.0F)};
  EngineJob job_;
  std::shared_ptr<Operation> first_, other_;
  std::vector<std::unique_ptr<ExposureAccess>> visits_;
  std::vector<std::thread> waiting_;
};

TEST_F(RevokedExposures, KeepACallWaitingUntilNoPeerWritesItsResult) {
  EXPECT_FALSE(first().ticket->done());
  EXPECT_FALSE(job().engine(0).idle());
  end_visits();
  job().run_until([&] { return first().ticket->done(); });
  expect_rejected();
}

TEST_F(RevokedExposures, DoNotKeepItWaitingForAPeerThatWasStopped) {
  EXPECT_FALSE(first().ticket->done());
  job().clock().advance(std::chrono::seconds(1));
  job().run_until([&] { return first().ticket->done(); });
  expect_rejected();
}

TEST_F(RevokedExposures, KeepItWaitingAfterAFailureToo) {
  job().engine(0).abort({.code = ErrorCode::kInternal, .what = "rank 0 has had enough"});
  job().poll(1000);
  EXPECT_FALSE(first().ticket->done());
  end_visits();
  job().run_until([&] { return first().ticket->done(); });
}

}  // namespace
}  // namespace kolo
