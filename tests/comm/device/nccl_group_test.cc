// Runs as a single rank, or as several under a launcher (mpirun -np 4 nccl_group_test). An even
// number of at least 4 ranks forms two nodes, any other number one.

#include <chrono>
#include <span>
#include <stdexcept>
#include <thread>

#include <gmock/gmock.h>

#include "comm/device/cuda_device.h"
#include "comm/native/device_factory.h"
#include "comm/native/group_factory.h"
#include "comm/rendezvous/launch.h"
#include "tests/comm/device/device_communicator_conformance.h"
#include "tests/comm/device/device_communicator_parts_conformance.h"

namespace kolo::test {
namespace {

constexpr std::chrono::seconds kLongestWait{60};

std::string why_unavailable() {
  const CudaAvailability found = find_cuda_devices();
  return found.device_count > 0 ? "" : "no CUDA device: " + found.reason;
}

struct Rank;

/// The job in which this process was started. It is joined when a test first needs it.
class Launched final : public testing::Environment {
 public:
  Rendezvous& rendezvous() {
    if (!rendezvous_) rendezvous_ = rendezvous_from_environment(kLongestWait);
    return *rendezvous_;
  }
  /// Returns the rank of the previous test, or a new one if it is used up. Connecting takes 1 s.
  std::shared_ptr<Rank> rank();
  /// The last test that uses this rank calls this.
  void use_up_rank() { rank_.reset(); }

  void TearDown() override {
    rank_.reset();
    rendezvous_.reset();
  }

 private:
  std::unique_ptr<Rendezvous> rendezvous_;
  std::shared_ptr<Rank> rank_;
};

auto* const launched = static_cast<Launched*>(testing::AddGlobalTestEnvironment(new Launched));

ProcessGrid grid_of(int size) {
  if (size < 4 || size % 2 != 0) return ProcessGrid::with_node_sizes({size});
  return ProcessGrid::with_node_sizes({size / 2, size / 2});
}

/// The resources of this process in a job: its device and both groups.
struct Rank {
  Rank() : groups(connected()) {}

  DeviceCommunicators connected() {
    const auto introductions = rendezvous.all_gather(introduce_groups(rank, *device, ""));
    DeviceCommunicators all = connect_groups(introductions, rank, grid, *device, kLongestWait);
    rendezvous.all_gather("");
    return all;
  }

  /// Calls `poll` until it returns true on this rank, then until it has returned true on all ranks.
  void wait_for(const std::function<bool()>& poll) {
    const auto deadline = std::chrono::steady_clock::now() + kLongestWait;
    while (!poll()) {
      if (std::chrono::steady_clock::now() > deadline) {
        throw std::runtime_error("what was waited for did not happen");
      }
      std::this_thread::yield();
    }
    rendezvous.all_gather("");
  }

  DeviceCommunicator& node() { return groups.node ? *groups.node : *groups.world; }

  /// Sums in place. Returns once the call is on its stream.
  static void all_reduce(DeviceCommunicator& group, Stream& stream, const DeviceMemory& data,
                         std::size_t count) {
    group.all_reduce(stream, data.data(), data.data(), count, DType::kFloat32, ReduceOp::kSum);
    while (group.is_launching()) std::this_thread::yield();
  }

  Rendezvous& rendezvous = launched->rendezvous();
  const int rank = rendezvous.rank();
  const int size = rendezvous.size();
  const ProcessGrid grid = grid_of(size);
  std::unique_ptr<Device> device = open_device("cuda", rank);
  DeviceCommunicators groups;
};

std::shared_ptr<Rank> Launched::rank() {
  if (!rank_) rank_ = std::make_shared<Rank>();
  return rank_;
}

enum class Which { kNode, kWorld };

class NcclGroupJob final : public GroupJob {
 public:
  explicit NcclGroupJob(Which which) : which_(which) {}

  int size() const override {
    return which_ == Which::kNode ? mine_->grid.local_size(mine_->rank) : mine_->size;
  }
  std::vector<int> ranks() const override {
    return {which_ == Which::kNode ? mine_->grid.local_rank(mine_->rank) : mine_->rank};
  }
  Device& device(int) override { return *mine_->device; }
  void use_up() override { launched->use_up_rank(); }
  bool is_slow() const override { return mine_->size > 1; }  // several ranks may share one GPU
  std::unique_ptr<DeviceCommunicator>& group(int) override {
    const bool is_node = which_ == Which::kNode && mine_->groups.node != nullptr;
    return is_node ? mine_->groups.node : mine_->groups.world;
  }

  void run_phase(const OfRank& start, const std::function<bool(int)>& done) override {
    const int self = ranks().front();
    start(self);
    mine_->wait_for([&] { return done(self); });
  }

  std::vector<std::string> exchange(const std::function<std::string(int)>& mine) override {
    const std::vector<std::string> world = mine_->rendezvous.all_gather(mine(ranks().front()));
    if (which_ == Which::kWorld) return world;
    std::vector<std::string> node;
    for (const int rank : mine_->grid.ranks_of_node(mine_->grid.node(mine_->rank))) {
      node.push_back(world[static_cast<std::size_t>(rank)]);
    }
    return node;
  }

 private:
  const Which which_;
  const std::shared_ptr<Rank> mine_ = launched->rank();
};

INSTANTIATE_TEST_SUITE_P(
    Nccl, DeviceCommunicatorConformance,
    testing::Values(GroupCase{"world", [] { return std::make_unique<NcclGroupJob>(Which::kWorld); },
                              why_unavailable},
                    GroupCase{"node", [] { return std::make_unique<NcclGroupJob>(Which::kNode); },
                              why_unavailable}),
    group_case_name);

class NcclDeviceCommunicators : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_unavailable(); !why.empty()) GTEST_SKIP() << why;
    mine_ = launched->rank();
  }

  /// Returns a buffer of ones on the device, written after earlier work on `stream`.
  DeviceMemory ones(Stream& stream, std::size_t count) {
    given_ = mine_->device->allocate(count * sizeof(float), MemoryKind::kPinned);
    write_values(given_, DType::kFloat32, std::vector<double>(count, 1.0));
    DeviceMemory memory = mine_->groups.world->allocate(count * sizeof(float));
    GroupDesk::copy(stream, memory, given_, count * sizeof(float));
    return memory;
  }

  std::shared_ptr<Rank> mine_;
  DeviceMemory given_;
};

TEST_F(NcclDeviceCommunicators, SayWhatTheyAre) {
  EXPECT_THAT(mine_->groups.world->describe(), testing::StartsWith("NCCL 2."));
  EXPECT_EQ(mine_->groups.world->size(), mine_->size);
  EXPECT_EQ(mine_->node().rank(), mine_->grid.local_rank(mine_->rank));
}

TEST_F(NcclDeviceCommunicators, BothTakeTurnsOnOneStreamAndEndInOrder) {
  launched->use_up_rank();
  constexpr std::size_t kCount = 1000;
  const auto stream = mine_->device->make_stream();
  const auto finished = mine_->device->make_event();
  const DeviceMemory taken = mine_->device->allocate(kCount * sizeof(float), MemoryKind::kPinned);
  const DeviceMemory data = ones(*stream, kCount);
  Rank::all_reduce(mine_->node(), *stream, data, kCount);
  Rank::all_reduce(*mine_->groups.world, *stream, data, kCount);
  GroupDesk::copy(*stream, taken, data, kCount * sizeof(float));
  stream->record(*finished);
  mine_->wait_for([&] { return finished->done(); });
  // In the sum over the world, each rank contributes the size of its node.
  double expected = 0;
  for (int rank = 0; rank < mine_->size; ++rank) expected += mine_->grid.local_size(rank);
  EXPECT_EQ(read_values(taken, DType::kFloat32, kCount), std::vector<double>(kCount, expected));
  for (DeviceCommunicator* group : {&mine_->node(), mine_->groups.world.get()}) {
    CommunicatorState state = CommunicatorState::kActive;
    mine_->wait_for([&] {
      state = group->finalize();
      return state != CommunicatorState::kFinalizing;
    });
    EXPECT_EQ(state, CommunicatorState::kFinalized);
    EXPECT_FALSE(group->async_error());
  }
}

TEST_F(NcclDeviceCommunicators, FurtherOnesOfSomeRanksConnectLaterAndSum) {
  constexpr std::size_t kCount = 1000;
  CommunicatorConnector& connector = *mine_->groups.connector;
  const int members = std::max(1, mine_->size - 1);
  std::string drawn;
  if (mine_->rank == 0) {
    const std::vector<std::byte> bytes = connector.make_unique_id();
    drawn.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  const std::string unique_id = mine_->rendezvous.all_gather(drawn).front();
  std::unique_ptr<ConnectingCommunicator> connecting;
  std::unique_ptr<DeviceCommunicator> group;
  if (mine_->rank < members) {
    connecting = connector.connect(std::as_bytes(std::span(unique_id)), mine_->rank, members);
  }
  mine_->wait_for([&] {
    if (connecting && !group) group = connecting->poll();
    return !connecting || group;
  });
  const auto stream = mine_->device->make_stream();
  const auto finished = mine_->device->make_event();
  const DeviceMemory taken = mine_->device->allocate(kCount * sizeof(float), MemoryKind::kPinned);
  const DeviceMemory data = ones(*stream, kCount);
  if (group) Rank::all_reduce(*group, *stream, data, kCount);
  GroupDesk::copy(*stream, taken, data, kCount * sizeof(float));
  stream->record(*finished);
  mine_->wait_for([&] { return finished->done(); });
  const double expected = group ? members : 1;
  EXPECT_EQ(read_values(taken, DType::kFloat32, kCount), std::vector<double>(kCount, expected));
  mine_->wait_for([&] { return !group || group->finalize() != CommunicatorState::kFinalizing; });
}

TEST_F(NcclDeviceCommunicators, AbortsReleaseAStreamThatWaitsForAPeerWhoLeft) {
  if (mine_->size == 1) GTEST_SKIP() << "needs a peer";
  launched->use_up_rank();
  const auto stream = mine_->device->make_stream();
  const auto finished = mine_->device->make_event();
  const DeviceMemory data = ones(*stream, 100);
  mine_->rendezvous.all_gather("");
  if (mine_->rank == mine_->size - 1) {
    mine_->groups.world.reset();  // the destructor aborts
    mine_->groups.node.reset();
    mine_->wait_for([] { return true; });
    return;
  }
  mine_->groups.world->all_reduce(*stream, data.data(), data.data(), 100, DType::kFloat32,
                                  ReduceOp::kSum);
  stream->record(*finished);
  for (DeviceCommunicator* group : {&mine_->node(), mine_->groups.world.get()}) {
    group->abort(std::chrono::milliseconds(0));  // both aborts begin before one is awaited
  }
  EXPECT_TRUE(mine_->groups.world->abort(kAbortWithin));
  EXPECT_TRUE(mine_->node().abort(kAbortWithin));
  mine_->wait_for([&] { return finished->done(); });
}

TEST_F(NcclDeviceCommunicators, TakeNoStreamOfAnotherKindOfDevice) {
  class NoStream final : public Stream {
    void copy(const BufferView&, const BufferView&) override {}
    void record(Event&) override {}
    void wait(const Event&) override {}
    void* native() const override { return nullptr; }
  } stream;
  EXPECT_THROW(
      mine_->groups.world->all_reduce(stream, nullptr, nullptr, 0, DType::kFloat32, ReduceOp::kSum),
      UsageError);
}

}  // namespace
}  // namespace kolo::test
