// Tests gradient sets of a group in device memory, for any interleaving. The device's collectives
// sum buckets among the group's members; members connect when one of them first needs it. Every
// second gradient travels as pairs.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>

#include "tests/support/device/host_stream.h"
#include "tests/support/engine_job.h"
#include "tests/support/group_job.h"

namespace kolo {
namespace {

using test::GroupJob;
using test::HostConnections;

const std::vector<std::size_t> kElements = {5, 64, 1, 333, 17};
const std::vector<int> kMembers = {3, 1, 0};
/// Sends all elements, after a dense step.
constexpr const char* kAllPairs = "topk(1,fp32,warmup=1,rule=lossless,route=owners)";

/// Returns small integers, whose sums over three ranks are exact in any order.
float element(int rank, std::size_t gradient, std::size_t index, int iteration) {
  const auto pattern = static_cast<int>((index + gradient) % 11) + 1;
  return static_cast<float>(3 * (rank + 1) * pattern * (iteration + 1));
}

/// A member of the group: its gradient set, and the stream that writes gradients after their marks.
struct Member {
  Engine* engine = nullptr;
  std::shared_ptr<GradientSetState> set = {};
  std::unique_ptr<Stream> stream = {};
  std::vector<DeviceMemory> memory = {};
};

Member begin_member(GroupJob& job, GroupEngine& group, bool is_in_arena) {
  Device& device = job.device(kMembers[static_cast<std::size_t>(group.rank())]);
  Member member{.engine = &group.engine(), .stream = device.make_stream()};
  std::vector<GradientSpec> specs;
  for (const std::size_t count : kElements) {
    specs.push_back({.name = "g" + std::to_string(specs.size()),
                     .shape = {count},
                     .memory = MemoryKind::kDevice});
    if (specs.size() % 2 == 0) specs.back().compression = kAllPairs;
    if (is_in_arena) continue;
    member.memory.push_back(device.allocate(count * sizeof(float), MemoryKind::kDevice));
    specs.back().data = member.memory.back().data();
  }
  member.set = std::make_shared<GradientSetState>("model", specs, GradientOptions{});
  member.engine->submit(member.set);
  return member;
}

void write_and_mark(Member& member, int rank, int iteration, std::mt19937& random) {
  std::vector<std::size_t> order(kElements.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::shuffle(order, random);
  for (const std::size_t gradient : order) {
    const BufferView view = member.set->view(gradient);
    as_host(*member.stream).enqueue([=] {
      for (std::size_t i = 0; i < view.count; ++i) {
        static_cast<float*>(view.data)[i] = element(rank, gradient, i, iteration);
      }
      return true;
    });
    test::mark(*member.engine, *member.set, gradient, NativeStream{member.stream.get()});
  }
}

std::unique_ptr<GroupJob> make_job(std::uint64_t seed, HostConnections& connections) {
  return std::make_unique<GroupJob>(
      ProcessGrid::with_node_sizes({2, 2}), seed, std::size_t{4} << 20,
      Options{.device_fusion_bytes = 400, .arena_bytes = GroupJob::kJobArena},
      [seed](int rank) {
        return std::make_unique<SeededHostDevice>(seed * 10 + static_cast<std::uint64_t>(rank));
      },
      &connections);
}

std::vector<Member> begin_members(GroupJob& job,
                                  const std::vector<std::shared_ptr<GroupEngine>>& groups,
                                  bool is_in_arena) {
  std::vector<Member> members;
  for (const auto& group : groups) members.push_back(begin_member(job, *group, is_in_arena));
  job.run_until([&] {
    return std::ranges::all_of(members,
                               [](const Member& each) { return each.set->registration().done(); });
  });
  return members;
}

/// Runs an iteration on all members and checks the averages.
void expect_averages(GroupJob& job, std::vector<Member>& members, int iteration,
                     std::mt19937& random) {
  for (int rank = 0; rank < 3; ++rank) {
    write_and_mark(members[static_cast<std::size_t>(rank)], rank, iteration, random);
  }
  job.run_until([&] {
    return std::ranges::all_of(members, [](const Member& each) { return each.engine->idle(); });
  });
  for (const Member& member : members) {
    ASSERT_TRUE(member.set->iterations().wait(std::chrono::milliseconds(1)));
    for (std::size_t gradient = 0; gradient < kElements.size(); ++gradient) {
      const auto* const average = static_cast<const float*>(member.set->view(gradient).data);
      for (std::size_t i = 0; i < kElements[gradient]; ++i) {
        ASSERT_EQ(average[i], element(1, gradient, i, iteration)) << "gradient " << gradient;
      }
    }
  }
}

TEST(DeviceCommunicators, AverageGradients) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    HostConnections connections;
    const auto job = make_job(seed, connections);
    const auto groups = job->create_all(kMembers);
    std::mt19937 random(static_cast<unsigned>(seed));
    std::vector<Member> members = begin_members(*job, groups, seed % 2 == 0);
    for (Member& member : members) {
      member.set->registration().wait(std::chrono::milliseconds(1));
      EXPECT_FALSE(member.engine->native_in_nodes()) << "a group has one communicator, of all";
    }
    for (int iteration = 0; iteration < 3; ++iteration) {
      expect_averages(*job, members, iteration, random);
    }
    EXPECT_EQ(connections.connected(), 1U);
  }
}

// The first group only plans, and the next group has the same tags.
TEST(DeviceCommunicators, AGroupThatClosesBeforeItConnectsTakesNothingOfTheNext) {
  HostConnections connections;
  const auto job = make_job(7, connections);
  std::mt19937 random(7);
  auto groups = job->create_all(kMembers);
  begin_members(*job, groups, true);
  for (const auto& group : groups) {
    GroupJob::submit(group->engine(), {.kind = OperationKind::kClose});
  }
  job->run_until([&] {
    return std::ranges::all_of(groups, [](const auto& each) { return each->engine().ended(); });
  });
  groups = job->create_all(kMembers);
  std::vector<Member> members = begin_members(*job, groups, true);
  expect_averages(*job, members, 0, random);
  EXPECT_EQ(connections.connected(), 1U);
}

}  // namespace
}  // namespace kolo
