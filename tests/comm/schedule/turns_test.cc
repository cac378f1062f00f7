#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "comm/algorithms/compile.h"
#include "comm/schedule/executor.h"
#include "tests/comm/schedule/one_tensor.h"
#include "tests/support/in_process_transport.h"

namespace kolo {
namespace {

// Flags and iterations of a bucket that follows another one, of which flags were raised less often.
constexpr std::uint64_t kFirstIteration = 7, kFlagBase = 5;

/// A rank of two that gather one element each at rank 0, through slots in turns.
class RankOfTwo {
 public:
  RankOfTwo(InProcessHub& hub, int rank) : transport_(hub.transport(rank)), executor_(*transport_) {
    const BucketLayout layout{.count = 2, .placement = Placement::kUser, .out_of_place = true};
    const PartExtents counts(2, 1);
    Schedule schedule =
        compile(rank, Goal::gather(0, counts), layout, hub.grid(), {.algorithm = "direct"});
    executor_.add(std::move(schedule),
                  {.name = "x",
                   .first_iteration = kFirstIteration,
                   .flag_base = kFlagBase,
                   .packer = std::make_shared<test::OneTensor>(result_.data(), input_.data())});
  }
  ~RankOfTwo() { transport_->shutdown(false); }
  RankOfTwo(const RankOfTwo&) = delete;
  RankOfTwo& operator=(const RankOfTwo&) = delete;

  void start(std::uint64_t iteration, float value) {
    input_.fill(value);
    executor_.start(0, kFirstIteration + iteration);
  }
  /// Whether it is over after a while, without the other rank.
  bool ends() {
    for (int i = 0; i < 100; ++i) {
      transport_->poll();
      executor_.poll();
    }
    return !executor_.busy();
  }
  float result_of(std::size_t rank) const { return result_[rank]; }

 private:
  std::unique_ptr<Transport> transport_;
  std::array<float, 2> result_{}, input_{};
  Executor executor_;
};

TEST(Turns, AHolderIsOneIterationAheadOfItsReader) {
  InProcessHub hub(ProcessGrid::with_node_sizes({2}));
  RankOfTwo root(hub, 0), other(hub, 1);
  other.start(0, 10);
  EXPECT_TRUE(other.ends());
  for (std::uint64_t iteration = 0; iteration < 4; ++iteration) {
    SCOPED_TRACE(iteration);
    other.start(iteration + 1, static_cast<float>(11 + iteration));
    EXPECT_FALSE(other.ends()) << "its former turn has not been read";
    root.start(iteration, static_cast<float>(iteration));
    EXPECT_TRUE(root.ends());
    EXPECT_EQ(root.result_of(0), static_cast<float>(iteration));
    EXPECT_EQ(root.result_of(1), static_cast<float>(10 + iteration));
    EXPECT_TRUE(other.ends());
  }
}

}  // namespace
}  // namespace kolo
