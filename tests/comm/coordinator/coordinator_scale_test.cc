// Runs a thousand coordinators in one thread, by hand four thousand. Tests how many frames each
// rank handles while one rank is late, and how ranks learn of a lost rank.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <bit>
#include <deque>

#include "comm/coordinator/combining_tree.h"
#include "comm/coordinator/coordinator.h"
#include "tests/support/control_network.h"
#include "tests/support/sanitized.h"

namespace kolo {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

const CoordinatorOptions kScaleOptions{.mismatch_after = seconds(1),
                                       .peer_timeout = seconds(10),
                                       .warn_after = seconds(1),
                                       .stall_after = seconds(600),
                                       .buckets = 1024};

struct Blocked final : Waitable {
  int waiters() const override { return 1; }
};

/// A job whose ranks poll when they receive a frame. Its time advances in ticks.
class LargeJob {
 public:
  explicit LargeJob(const std::vector<int>& nodes) : network_(ProcessGrid::with_node_sizes(nodes)) {
    for (int rank = 0; rank < size(); ++rank) {
      transports_.push_back(network_.transport(rank));
      coordinators_.push_back(std::make_unique<Coordinator>(*transports_.back(), network_.grid(),
                                                            clock_, kScaleOptions));
      trees_.push_back(CombiningTree::build(rank, network_.grid()));
    }
  }

  int size() const { return network_.grid().world_size(); }
  Coordinator& coordinator(int rank) { return *coordinators_[static_cast<std::size_t>(rank)]; }
  const CombiningTree& tree(int rank) const { return trees_[static_cast<std::size_t>(rank)]; }
  test::ControlNetwork& network() { return network_; }

  /// Submits `tensors` named tensors. A thread of the rank waits for each.
  void submit(int rank, int tensors) {
    while (static_cast<int>(names_.size()) < tensors) {
      names_.push_back(fmt::format("gradient {}", names_.size()));
      texts_.push_back(fmt::format("'{}': all_reduce float32 [1024] sum", names_.back()));
    }
    for (std::size_t tensor = 0; tensor < static_cast<std::size_t>(tensors); ++tensor) {
      coordinator(rank).propose(names_[tensor], 1, texts_[tensor], blocked_);
    }
    coordinator(rank).poll();
  }

  /// Delivers all frames in flight.
  void settle() {
    for (std::vector<int> rung = network_.take_rung(); !rung.empty(); rung = network_.take_rung()) {
      for (const int rank : rung) {
        if (!network_.is_frozen(rank)) coordinator(rank).poll();
      }
    }
  }

  /// For `time`, all ranks poll and check each other in every tick.
  void run(Duration time) {
    constexpr Duration kScaleTick = milliseconds(125);
    for (const TimePoint end = clock_.now() + time; clock_.now() < end;) {
      clock_.advance(kScaleTick);
      for (int rank = 0; rank < size(); ++rank) {
        if (network_.is_frozen(rank)) continue;
        coordinator(rank).poll();
        if (coordinator(rank).is_check_due(false)) coordinator(rank).check_peers({});
      }
      settle();
    }
  }

  int accepted(int rank) {
    const auto decisions = coordinator(rank).take_decisions();
    return static_cast<int>(std::ranges::count(decisions, FrameKind::kAccept, &Frame::kind));
  }

  /// Fails if a rank has handled many more frames or bytes than the average rank without children.
  /// The bound is a factor of a few times the logarithm of the job's size.
  void expect_shared_load(std::string_view phase) const {
    double leaves = 0, frames = 0, bytes = 0;
    for (int rank = 0; rank < size(); ++rank) {
      if (!tree(rank).children.empty()) continue;
      ++leaves;
      frames += static_cast<double>(network_.load(rank).frames);
      bytes += static_cast<double>(network_.load(rank).bytes);
    }
    ASSERT_GT(leaves, 0);
    ASSERT_GT(frames, 0);
    std::uint64_t most_frames = 0, most_bytes = 0;
    for (int rank = 0; rank < size(); ++rank) {
      most_frames = std::max(most_frames, network_.load(rank).frames);
      most_bytes = std::max(most_bytes, network_.load(rank).bytes);
    }
    const double bound = 2 * std::bit_width(static_cast<unsigned>(size()));
    const double frame_share = static_cast<double>(most_frames) / (frames / leaves);
    const double byte_share = static_cast<double>(most_bytes) / (bytes / leaves);
    fmt::print(
        "{}: a leaf {:.0f} frames, {:.0f} bytes; the busiest rank {} ({:.1f} times), {} "
        "({:.1f} times)\n",
        phase, frames / leaves, bytes / leaves, most_frames, frame_share, most_bytes, byte_share);
    EXPECT_LE(frame_share, bound) << phase;
    EXPECT_LE(byte_share, bound) << phase;
  }

 private:
  ManualClock clock_;
  test::ControlNetwork network_;
  Blocked blocked_;
  std::vector<std::string> names_, texts_;  // by tensor
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<std::unique_ptr<Coordinator>> coordinators_;
  std::vector<CombiningTree> trees_;
};

struct Shape {
  int nodes = 1;
  int ranks_per_node = 1;
  int tensors = 1;
};

std::string shape_name(const testing::TestParamInfo<Shape>& shape) {
  return fmt::format("{}x{}", shape.param.nodes, shape.param.ranks_per_node);
}

class LargeJobs : public testing::TestWithParam<Shape> {
 protected:
  static std::vector<int> nodes() {
    return std::vector<int>(static_cast<std::size_t>(GetParam().nodes), GetParam().ranks_per_node);
  }
};

TEST_P(LargeJobs, OneLateRankDrownsNobody) {
  LargeJob job(nodes());
  const int late = job.size() * 2 / 3;
  const int tensors = GetParam().tensors;
  for (int rank = 0; rank < job.size(); ++rank) {
    if (rank != late) job.submit(rank, tensors);
  }
  job.settle();
  job.network().forget_loads();

  testing::internal::CaptureStderr();
  job.run(kScaleOptions.warn_after + seconds(3));
  const std::string log = testing::internal::GetCapturedStderr();
  job.expect_shared_load("while a rank is late");
  EXPECT_THAT(log, HasSubstr(fmt::format("{} tensors have waited", tensors)));
  EXPECT_THAT(log, HasSubstr(fmt::format("waiting: ranks 0-{}, {}-{}; missing: rank {}\n", late - 1,
                                         late + 1, job.size() - 1, late)));
  EXPECT_THAT(log, HasSubstr(fmt::format("rank {}: nothing yet", late)));

  job.network().forget_loads();
  job.submit(late, tensors);
  job.settle();
  job.expect_shared_load("when it has come");
  for (int rank = 0; rank < job.size(); ++rank) ASSERT_EQ(job.accepted(rank), tensors);
}

// A rank in the middle of the tree freezes while all others wait. Each survivor must be notified in
// time, and only by its neighbours.
TEST_P(LargeJobs, ALostRankIsToldOnceOverEachEdge) {
  const int last_node = GetParam().nodes - 1;
  for (const int lost_node : {0, 1, last_node}) {
    LargeJob job(nodes());
    const int lost = lost_node * GetParam().ranks_per_node;
    SCOPED_TRACE(fmt::format("rank {} is lost", lost));
    // The last rank submits nothing, and does not know that the others wait.
    for (int rank = 0; rank + 1 < job.size(); ++rank) job.submit(rank, 1);
    job.settle();
    job.network().freeze(lost);
    testing::internal::CaptureStderr();
    job.run(kScaleOptions.peer_timeout * 5 / 4 + milliseconds(125));
    testing::internal::GetCapturedStderr();
    for (int rank = 0; rank < job.size(); ++rank) {
      if (rank == lost) continue;
      const auto& failure = job.coordinator(rank).failure();
      ASSERT_TRUE(failure) << "rank " << rank;
      ASSERT_EQ(failure->peer, lost);
    }
    for (int rank = 0; rank < job.size(); ++rank) {
      const std::size_t edges = job.tree(rank).children.size() + 1;
      const std::size_t around = job.tree(lost).children.size() + 1;
      // A rank handles its own notices and those of its neighbours. Neighbours of the lost rank
      // that detect the loss at the same time notify each other.
      ASSERT_LE(job.network().load(rank).notices, 2 * (edges + around)) << "rank " << rank;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, LargeJobs,
    testing::ValuesIn(test::kSanitized
                          ? std::vector<Shape>{{64, 1, 30}, {16, 4, 30}}
                          : std::vector<Shape>{{1024, 1, 100}, {128, 8, 30}, {32, 32, 30}}),
    shape_name);
INSTANTIATE_TEST_SUITE_P(DISABLED_LargestShapes, LargeJobs,
                         testing::Values(Shape{4096, 1, 300}, Shape{512, 8, 30}, Shape{64, 64, 30}),
                         shape_name);

}  // namespace
}  // namespace kolo
