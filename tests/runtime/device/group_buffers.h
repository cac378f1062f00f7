#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "runtime/calls/row_sums/row_reduction.h"
#include "tests/runtime/calls/collective_calls.h"
#include "tests/support/device/moved_buffers.h"
#include "tests/support/group_job.h"

namespace kolo::test {

/// Moves the buffers of a group's operations to the memory of any kind of device.
class GroupBuffers {
 public:
  explicit GroupBuffers(GroupJob& job) : job_(job) {}

  /// Copies the buffers of member `rank` of `ranks` to the device of rank `rank_of_job` of the job.
  void move(Operation& operation, int rank, int ranks, int rank_of_job) {
    operation.memory = MemoryKind::kDevice;
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
      copy(device, all_of(moved.memory), all_of(moved.pinned));
      buffer = moved.memory.data();
      moved_.push_back(std::move(moved));
    });
  }

  /// Copies host memory to the device of rank `rank_of_job`.
  DeviceMemory upload(int rank_of_job, std::span<const float> host) {
    Device& device = job_.device(rank_of_job);
    const DeviceMemory pinned = device.allocate(host.size_bytes(), MemoryKind::kPinned);
    DeviceMemory memory = device.allocate(host.size_bytes(), MemoryKind::kDevice);
    std::memcpy(pinned.data(), host.data(), host.size_bytes());
    copy(device, all_of(memory), all_of(pinned));
    return memory;
  }
  std::vector<float> download(int rank_of_job, const BufferView& view) {
    Device& device = job_.device(rank_of_job);
    const DeviceMemory pinned = device.allocate(view.bytes(), MemoryKind::kPinned);
    copy(device, all_of(pinned), {view.data, view.bytes(), DType::kUInt8, view.memory});
    const auto* const values = reinterpret_cast<const float*>(pinned.data());
    return {values, values + view.count};
  }

  /// Copies results back and frees all buffers. The operations must be done.
  void bring_back() {
    for (const Moved& moved : moved_) {
      if (moved.is_input) continue;
      copy(job_.device(moved.rank), all_of(moved.pinned), all_of(moved.memory));
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
    return {memory.data(), memory.bytes(), DType::kUInt8, memory.kind()};
  }

  void copy(Device& device, const BufferView& to, const BufferView& from) {
    const auto stream = device.make_stream();
    const auto copied = device.make_event();
    stream->copy(to, from);
    stream->record(*copied);
    job_.run_until([&] { return copied->done(); });
  }

  GroupJob& job_;
  std::vector<Moved> moved_;
};

/// Tests sums of two tensors in a group of three ranks. `ranks` are their numbers in the job.
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
        const BufferView sum{sums[me].data() + first, count};
        return in_place ? Tensor(sum) : Tensor({inputs[me].data() + first, count}, sum);
      };
      const Tensor each[] = {tensor(0, 7), tensor(7, 43)};
      OperationPool pool;
      auto operation =
          OperationCalls(pool, rank, 3)
              .make(OperationKind::kAllReduce, in_place ? "tensors in place" : "tensors", each);
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

/// Tests row-sparse sums of two tables. Each member has one row with an index that no other member
/// has, and two rows with an index that all members have.
inline void expect_rows(GroupJob& job, const std::vector<int>& ranks,
                        const std::vector<std::shared_ptr<GroupEngine>>& members) {
  constexpr std::size_t kHeight = 9, kWidth = 5, kShared = 7;
  const RowTable table{
      .height = kHeight, .width = kWidth, .dtype = DType::kFloat32, .memory = MemoryKind::kDevice};
  const Options options{.arena_bytes = GroupJob::kJobArena};
  const LinkCosts costs;
  GroupBuffers buffers(job);
  std::vector<float> expected(kHeight * kWidth);
  for (std::size_t i = 0; i < 3 * kWidth; ++i) {
    const auto value = static_cast<float>(i / kWidth + 1);
    expected[i] += value;
    expected[kShared * kWidth + i % kWidth] += 2 * value;
  }
  for (const RowForm exchange : {RowForm::kRows, RowForm::kTable}) {
    std::vector<DeviceMemory> rows;
    std::vector<std::shared_ptr<RowReduction>> calls;
    for (std::size_t me = 0; me < 3; ++me) {
      const auto rank = static_cast<std::int64_t>(me);
      const std::vector<std::int64_t> indices{kShared, rank, kShared};
      const std::vector<float> mine(3 * kWidth, static_cast<float>(rank + 1));
      rows.push_back(buffers.upload(ranks[me], mine));
      const TableRows one{.table = table, .indices = indices, .rows = rows.back().data()};
      const std::vector<TableRows> tables{one, one};
      std::vector<RowSums> results(2);
      calls.push_back(std::make_shared<RowReduction>(
          PlanInputs{.rank = static_cast<int>(me),
                     .grid = members[me]->grid(),
                     .options = options,
                     .costs = costs},
          "rows", tables, RowOptions{.result = RowForm::kTable, .exchange = exchange}, results,
          RowDevice{.device = &job.device(ranks[me])}));
      members[me]->engine().submit(std::shared_ptr<CompositeOp>(calls.back()));
    }
    job.run_until(
        [&] { return std::ranges::all_of(calls, [](const auto& call) { return call->done(); }); });
    for (std::size_t me = 0; me < 3; ++me) {
      ASSERT_NO_THROW(calls[me]->wait(std::chrono::milliseconds(1)));
      for (const RowSums& sums : calls[me]->take()) {
        ASSERT_EQ(buffers.download(ranks[me], sums.rows()), expected) << "member " << me;
      }
    }
  }
}

/// Tests every collective of `collective_calls`, and sums of several tensors and of rows, in a
/// group of three ranks of a job of four. `make_device` makes the devices, and `connections`
/// connects the group's collectives.
inline void expect_group_collectives(const GroupJob::MakeDevice& make_device, std::uint64_t seed,
                                     HostConnections* connections = nullptr) {
  GroupJob job(ProcessGrid::with_node_sizes({2, 2}), seed, std::size_t{4} << 20,
               {.arena_bytes = GroupJob::kJobArena}, make_device, connections);
  const std::vector<int> ranks{3, 1, 0};
  const auto members = job.create_all(ranks, "g", std::size_t{1} << 20);
  const std::vector<std::size_t> even{70, 70, 70}, uneven{0, 5, 333};
  GroupBuffers moved(job);
  for (const CollectiveCall& call : collective_calls()) {
    for (const auto& counts : {even, uneven}) {
      if (counts == uneven && !call.takes_counts) continue;
      for (const bool in_place : {false, true}) {
        const std::string name =
            call.name + std::to_string(counts[0]) + (in_place ? " in place" : "");
        const CollectiveSpec spec = call.spec(counts, 1);
        std::vector<CollectiveBuffers> buffers;
        for (int rank = 0; rank < 3; ++rank) buffers.push_back(buffers_for(spec, rank, in_place));
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
  expect_rows(job, ranks, members);
}

}  // namespace kolo::test
