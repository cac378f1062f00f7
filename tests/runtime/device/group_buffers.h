#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "tests/runtime/engine/collective_calls.h"
#include "tests/support/device/moved_buffers.h"
#include "tests/support/group_job.h"

namespace kolo::test {

/// The buffers of operations of a group's members in the memory of their devices, of any kind.
class GroupBuffers {
 public:
  explicit GroupBuffers(GroupJob& job) : job_(job) {}

  /// Copies what member `rank` of `ranks` gives and gets to the device of a rank of the job.
  void move(Operation& operation, int rank, int ranks, int rank_of_job) {
    operation.buffer.memory = MemoryKind::kDevice;
    for_each_buffer(operation, rank, ranks, [&](auto*& buffer, std::size_t bytes, bool is_input) {
      if (buffer == nullptr || bytes == 0) return;
      Device& device = job_.device(rank_of_job);
      auto* const host = static_cast<std::byte*>(const_cast<void*>(std::as_const(buffer)));
      Moved moved{.host = host,
                  .rank = rank_of_job,
                  .is_input = is_input,
                  .pinned = device.allocate(bytes, MemoryKind::kPinned),
                  .memory = device.allocate(bytes, MemoryKind::kDevice)};
      std::memcpy(moved.pinned.data(), host, bytes);
      copy(device, moved.memory, moved.pinned);
      buffer = moved.memory.data();
      moved_.push_back(std::move(moved));
    });
  }

  /// Copies results back, and frees everything. Before: the operations are done.
  void bring_back() {
    for (const Moved& moved : moved_) {
      if (moved.is_input) continue;
      copy(job_.device(moved.rank), moved.pinned, moved.memory);
      std::memcpy(moved.host, moved.pinned.data(), moved.pinned.bytes());
    }
    moved_.clear();
  }

 private:
  struct Moved {
    std::byte* host = nullptr;
    int rank = 0;
    bool is_input = false;
    DeviceMemory pinned, memory;
  };

  static BufferView all_of(const DeviceMemory& memory) {
    return {.data = memory.data(),
            .count = memory.bytes(),
            .dtype = DType::kUInt8,
            .memory = memory.kind()};
  }

  void copy(Device& device, const DeviceMemory& to, const DeviceMemory& from) {
    const auto stream = device.make_stream();
    const auto copied = device.make_event();
    stream->copy(all_of(to), all_of(from));
    stream->record(*copied);
    job_.run_until([&] { return copied->done(); });
  }

  GroupJob& job_;
  std::vector<Moved> moved_;
};

/// Sums of two tensors in a group of three ranks, `ranks` of the job.
inline void expect_grouped_sums(GroupJob& job, const std::vector<int>& ranks,
                                const std::vector<std::shared_ptr<GroupEngine>>& members) {
  GroupBuffers moved(job);
  for (const bool in_place : {false, true}) {
    std::vector<std::vector<float>> inputs, sums;
    std::vector<std::shared_ptr<Operation>> operations;
    for (int rank = 0; rank < 3; ++rank) {
      inputs.emplace_back(50, static_cast<float>(rank + 1));
      sums.push_back(in_place ? inputs.back() : std::vector<float>(50, -1));
    }
    for (int rank = 0; rank < 3; ++rank) {
      const auto me = static_cast<std::size_t>(rank);
      const auto tensor = [&](std::size_t first, std::size_t count) {
        return TensorBuffers{.input = in_place ? nullptr : inputs[me].data() + first,
                             .result = sums[me].data() + first,
                             .count = count};
      };
      const TensorBuffers each[] = {tensor(0, 7), tensor(7, 43)};
      OperationPool pool;
      auto operation = OperationCalls(pool, rank, 3)
                           .grouped(OperationKind::kAllReduce,
                                    in_place ? "tensors in place" : "tensors", {.each = each});
      moved.move(*operation, rank, 3, ranks[me]);
      operations.push_back(GroupJob::submit(members[me]->engine(), *operation));
    }
    job.finish(operations);
    moved.bring_back();
    for (std::size_t rank = 0; rank < 3; ++rank) {
      ASSERT_EQ(error_of(*operations[rank]), "");
      ASSERT_EQ(sums[rank], std::vector<float>(50, 6)) << "member " << rank;
    }
  }
}

/// Every collective of `collective_calls`, and sums of several tensors, in a group of three ranks
/// of a job of four, on devices that `make_device` makes, with collectives of their own through
/// `connections`.
inline void expect_group_collectives(const GroupJob::MakeDevice& make_device, std::uint64_t seed,
                                     HostConnections* connections = nullptr) {
  GroupJob job(ProcessGrid::with_node_sizes({2, 2}), seed, std::size_t{4} << 20,
               {.arena_bytes = GroupJob::kJobArena}, make_device, connections);
  const std::vector<int> ranks{3, 1, 0};
  const auto members = job.found_all(ranks, "g", std::size_t{1} << 20);
  const std::vector<std::size_t> even{70, 70, 70}, uneven{0, 5, 333};
  GroupBuffers moved(job);
  for (const CollectiveCall& call : collective_calls()) {
    for (const auto& counts : {even, uneven}) {
      if (counts == uneven && !call.takes_counts) continue;
      for (const bool in_place : {false, true}) {
        const std::string name =
            call.name + std::to_string(counts[0]) + (in_place ? " in place" : "");
        const Goal goal = call.goal(counts, 1);
        std::vector<CollectiveBuffers> buffers;
        for (int rank = 0; rank < 3; ++rank) buffers.push_back(buffers_for(goal, rank, in_place));
        std::vector<std::shared_ptr<Operation>> operations;
        for (int rank = 0; rank < 3; ++rank) {
          const auto me = static_cast<std::size_t>(rank);
          OperationPool pool;
          auto operation =
              call.make(OperationCalls(pool, rank, 3), name, buffers[me], counts, 1, in_place);
          moved.move(*operation, rank, 3, ranks[me]);
          operations.push_back(GroupJob::submit(members[me]->engine(), *operation));
        }
        job.finish(operations);
        moved.bring_back();
        for (std::size_t rank = 0; rank < 3; ++rank) {
          ASSERT_EQ(error_of(*operations[rank]), "") << name;
          ASSERT_EQ(buffers[rank].result, buffers[rank].expected) << name << " member " << rank;
        }
      }
    }
  }
  expect_grouped_sums(job, ranks, members);
}

}  // namespace kolo::test
