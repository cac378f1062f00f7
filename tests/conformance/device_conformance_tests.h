#pragma once

// The tests of the suite. A binary includes them once, and must link allocations.cc.

#include <algorithm>
#include <cstring>
#include <numeric>

#include "comm/base/error.h"
#include "comm/base/half.h"
#include "comm/device/bounce_buffer.h"
#include "tests/conformance/device_conformance.h"
#include "tests/support/allocations.h"

namespace kolo::test {

inline std::vector<std::int32_t> numbers(std::size_t count, std::int32_t first = 1) {
  std::vector<std::int32_t> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

TEST_P(DeviceConformance, SaysWhatItIs) { EXPECT_FALSE(device().describe().empty()); }

TEST_P(DeviceConformance, MemoryIsAlignedAndOfItsKind) {
  for (const MemoryKind kind : {MemoryKind::kPinned, MemoryKind::kDevice}) {
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{1000}, std::size_t{1} << 20}) {
      const DeviceMemory memory = device().allocate(bytes, kind);
      EXPECT_TRUE(memory);
      EXPECT_EQ(memory.bytes(), bytes);
      EXPECT_EQ(memory.kind(), kind);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % 256, 0u);
    }
  }
}

TEST_P(DeviceConformance, CopiesGoBetweenPinnedAndDeviceMemory) {
  for (const std::size_t count : {0u, 1u, 1000u, 300'001u}) {
    SCOPED_TRACE(count);
    const auto sent = numbers(count);
    const DeviceMemory first = upload(sent);
    const DeviceMemory second = device().allocate(first.bytes(), MemoryKind::kDevice);
    const auto stream = device().make_stream();
    stream->copy(view(second), view(first));
    finish(*stream);
    EXPECT_EQ(download<std::int32_t>(second), sent);
  }
}

TEST_P(DeviceConformance, WorkOfOneStreamRunsInOrder) {
  constexpr std::size_t kPlaces = 20;
  const auto sent = numbers(10'000);
  std::vector<DeviceMemory> places;
  places.push_back(upload(sent));
  for (std::size_t i = 1; i < kPlaces; ++i) {
    places.push_back(upload(numbers(sent.size(), -static_cast<std::int32_t>(i))));
  }
  const auto stream = device().make_stream();
  for (std::size_t i = 1; i < kPlaces; ++i) stream->copy(view(places[i]), view(places[i - 1]));
  finish(*stream);
  EXPECT_EQ(download<std::int32_t>(places.back()), sent);
}

TEST_P(DeviceConformance, AnEventIsDoneUntilItIsRecorded) {
  const auto event = device().make_event();
  EXPECT_TRUE(event->done());
  const auto stream = device().make_stream();
  stream->wait(*event);
  finish(*stream);
}

TEST_P(DeviceConformance, AStreamWaitsForTheOther) {
  const auto sent = numbers(5000);
  const DeviceMemory source = upload(sent);
  const DeviceMemory middle = upload(numbers(sent.size(), -9999));
  const DeviceMemory target = upload(numbers(sent.size(), -9999));
  const auto produced = device().make_event(), consumed = device().make_event();
  const auto producer = device().make_stream(), consumer = device().make_stream();

  hold(*producer);
  producer->copy(view(middle), view(source));
  producer->record(*produced);
  consumer->wait(*produced);
  consumer->copy(view(target), view(middle));
  consumer->record(*consumed);
  for (int i = 0; i < 10; ++i) {
    under_test_->advance();
    EXPECT_FALSE(produced->done());
    EXPECT_FALSE(consumed->done());
  }
  release();
  wait_for(*consumed);
  EXPECT_TRUE(produced->done());
  EXPECT_EQ(download<std::int32_t>(target), sent);
}

TEST_P(DeviceConformance, MemoryFromTheStreamsPoolIsUsedInItsOrder) {
  const auto sent = numbers(5000);
  const DeviceMemory source = upload(sent);
  const DeviceMemory target = upload(numbers(sent.size(), -9999));
  const auto pool = device().make_stream(), other = device().make_stream();
  const auto allocated = device().make_event();
  DeviceMemory middle = device().allocate_on(*pool, source.bytes());
  EXPECT_EQ(middle.kind(), MemoryKind::kDevice);
  EXPECT_EQ(device().problem_with(middle.data(), middle.bytes()), "");
  pool->record(*allocated);
  other->wait(*allocated);
  other->copy(view(middle), view(source));
  other->copy(view(target), view(middle));
  finish(*other);
  middle = {};
  finish(*pool);
  EXPECT_EQ(download<std::int32_t>(target), sent);
}

TEST_P(DeviceConformance, AWaitIsForWhatWasRecordedBeforeIt) {
  const auto event = device().make_event(), waited = device().make_event();
  const auto held = device().make_stream(), idle = device().make_stream();
  const auto waiting = device().make_stream();
  hold(*held);
  held->record(*event);
  waiting->wait(*event);
  waiting->record(*waited);
  idle->record(*event);
  wait_for(*event);
  for (int i = 0; i < 10; ++i) {
    under_test_->advance();
    EXPECT_FALSE(waited->done());
  }
  release();
  wait_for(*waited);
}

TEST_P(DeviceConformance, AnEventMovesOnWithItsLastRecord) {
  const auto event = device().make_event();
  const auto stream = device().make_stream();
  stream->record(*event);
  wait_for(*event);
  hold(*stream);
  stream->record(*event);
  EXPECT_FALSE(event->done());
  release();
  wait_for(*event);
}

TEST_P(DeviceConformance, StreamsOfTheCallerAreWaitedForAndWait) {
  const auto sent = numbers(777);
  const DeviceMemory source = upload(sent);
  const DeviceMemory middle = upload(numbers(sent.size(), -9999));
  const DeviceMemory target = upload(numbers(sent.size(), -9999));
  const auto callers = device().make_stream(), ours = device().make_stream();
  const auto written = device().make_event(), copied = device().make_event();
  const auto end = device().make_event();

  hold(*callers);
  callers->copy(view(middle), view(source));
  device().record(under_test_->as_callers(*callers), *written);
  ours->wait(*written);
  ours->copy(view(target), view(middle));
  ours->record(*copied);
  EXPECT_FALSE(copied->done());

  device().wait(under_test_->as_callers(*callers), *copied);
  callers->record(*end);
  release();
  wait_for(*end);
  EXPECT_TRUE(copied->done());
  EXPECT_EQ(download<std::int32_t>(target), sent);
}

TEST_P(DeviceConformance, WhatACallerWithoutAStreamDidIsOverOrWaitedFor) {
  const auto event = device().make_event();
  device().record(NativeStream{}, *event);
  wait_for(*event);
}

TEST_P(DeviceConformance, CopiesThatAreNoStreamOperationsAreRefused) {
  const DeviceMemory memory = device().allocate(8, MemoryKind::kDevice);
  std::vector<std::byte> ordinary(8);
  const BufferView host{ordinary.data(), 8, DType::kUInt8};
  const auto stream = device().make_stream();
  EXPECT_THROW(stream->copy(view(memory), host), UsageError);
  EXPECT_THROW(stream->copy(host, view(memory)), UsageError);
  BufferView shorter = view(memory);
  shorter.count = 7;
  EXPECT_THROW(stream->copy(view(memory), shorter), UsageError);
  EXPECT_THROW(device().allocate(8, MemoryKind::kHost), UsageError);
  finish(*stream);
}

/// An event that belongs to no device.
class StrayEvent final : public Event {
 public:
  bool done() const override { return true; }
};

TEST_P(DeviceConformance, EventsOfAnotherKindOfDeviceAreRefused) {
  const auto stream = device().make_stream();
  StrayEvent stray;
  EXPECT_THROW(stream->record(stray), UsageError);
  EXPECT_THROW(stream->wait(stray), UsageError);
  EXPECT_THROW(device().record(NativeStream{}, stray), UsageError);
}

TEST_P(DeviceConformance, CountsWhatItHandsOut) {
  const AllocationCounts before = device().allocation_counts();
  const DeviceMemory memory[] = {device().allocate(1, MemoryKind::kDevice),
                                 device().allocate(1, MemoryKind::kPinned)};
  const auto stream = device().make_stream();
  const auto first = device().make_event(), second = device().make_event();
  const AllocationCounts after = device().allocation_counts();
  EXPECT_EQ(after.allocations, before.allocations + 2);
  EXPECT_EQ(after.streams, before.streams + 1);
  EXPECT_EQ(after.events, before.events + 2);
}

TEST_P(DeviceConformance, KernelsAreStreamOperations) {
  // Two tensors with a gap are doubled, summed three times and copied back.
  const std::vector<float> first = {1, 2, 3}, second = {-4, 0.5F};
  const DeviceMemory tensors[] = {upload(first), upload(second)};
  const DeviceMemory results[] = {upload(std::vector<float>(3)), upload(std::vector<float>(2))};
  const DeviceMemory bucket = upload(std::vector<BFloat16>(6, BFloat16{0x7fc0}));
  const auto table = [&](const DeviceMemory(&of)[2]) {
    return upload(std::vector<CopyChunk>{{.tensor = of[0].data(), .offset = 0, .count = 3},
                                         {.tensor = nullptr, .offset = 3, .count = 1},
                                         {.tensor = of[1].data(), .offset = 4, .count = 2}});
  };
  const DeviceMemory pack_table = table(tensors), unpack_table = table(results);
  const DeviceMemory flag = upload(std::vector<std::uint32_t>{0});
  const auto copy = [&](CopyDirection direction, const DeviceMemory& chunks, double scale) {
    return BatchedCopy{.direction = direction,
                       .chunks = {reinterpret_cast<const CopyChunk*>(chunks.data()), 3},
                       .bucket = bucket.data(),
                       .tensor_dtype = DType::kFloat32,
                       .bucket_dtype = DType::kBFloat16,
                       .scale = scale,
                       .non_finite = reinterpret_cast<std::uint32_t*>(flag.data())};
  };
  const auto stream = device().make_stream();
  device().kernels().copy_batched(*stream, copy(CopyDirection::kPack, pack_table, 2.0));
  {
    // The caller may change the list of sources immediately after the call.
    std::vector<const void*> sources(3, bucket.data());
    device().kernels().reduce(*stream, DType::kBFloat16, ReduceOp::kSum, bucket.data(), sources, 6,
                              1.0);
    sources.assign(3, nullptr);
  }
  device().kernels().copy_batched(*stream, copy(CopyDirection::kUnpack, unpack_table, 1.0));
  finish(*stream);
  EXPECT_EQ(download<float>(results[0]), (std::vector<float>{6, 12, 18}));
  EXPECT_EQ(download<float>(results[1]), (std::vector<float>{-24, 3}));
  EXPECT_EQ(download<BFloat16>(bucket)[3], BFloat16{0});
  EXPECT_EQ(download<std::uint32_t>(flag), std::vector<std::uint32_t>{0});

  device().kernels().copy_batched(*stream, copy(CopyDirection::kPack, pack_table, 1e39));
  finish(*stream);
  EXPECT_EQ(download<std::uint32_t>(flag), std::vector<std::uint32_t>{1});
}

TEST_P(DeviceConformance, AReductionTakesUpTo64Sources) {
  const DeviceMemory source = upload(std::vector<float>{1, 2});
  const DeviceMemory target = upload(std::vector<float>{0, 0});
  const auto stream = device().make_stream();
  std::vector<const void*> sources(kMostReduceSources, source.data());
  const auto sum = [&] {
    device().kernels().reduce(*stream, DType::kFloat32, ReduceOp::kSum, target.data(), sources, 2,
                              0.5);
  };
  sum();
  finish(*stream);
  EXPECT_EQ(download<float>(target), (std::vector<float>{32, 64}));
  sources.push_back(source.data());
  EXPECT_THROW(sum(), UsageError);
  sources.clear();
  EXPECT_THROW(sum(), UsageError);
}

TEST_P(DeviceConformance, RowsAreSummedInGroupsAndSpreadOverATable) {
  const DeviceMemory rows = upload(std::vector<float>{1, 2, 3, 4, 5, 6});
  const DeviceMemory sums = upload(std::vector<float>(4, -1));
  const DeviceMemory table = upload(std::vector<float>(10, -1));
  const DeviceMemory positions = upload(std::vector<std::size_t>{1, 2, 0});
  const DeviceMemory ends = upload(std::vector<std::size_t>{1, 3});
  const DeviceMemory indices = upload(std::vector<std::int64_t>{4, 1});
  const RowGroups groups{.count = 2,
                         .positions = {reinterpret_cast<const std::size_t*>(positions.data()), 3},
                         .ends = {reinterpret_cast<const std::size_t*>(ends.data()), 2}};
  const auto stream = device().make_stream();
  device().kernels().sum_rows(*stream, groups, rows.data(), 2, DType::kFloat32, 0.5, sums.data());
  device().kernels().spread_rows(*stream,
                                 {reinterpret_cast<const std::int64_t*>(indices.data()), 2},
                                 sums.data(), 2 * sizeof(float), table.data(), 5);
  finish(*stream);
  EXPECT_EQ(download<float>(sums), (std::vector<float>{1.5F, 2, 3, 4}));
  EXPECT_EQ(download<float>(table), (std::vector<float>{0, 0, 3, 4, 0, 0, 0, 0, 1.5F, 2}));
}

TEST_P(DeviceConformance, ASteadyStepAllocatesNothing) {
  const DeviceMemory a = upload(numbers(1000)), b = upload(numbers(1000));
  const auto first = device().make_stream(), second = device().make_stream();
  const auto written = device().make_event(), read = device().make_event();
  const void* const sources[] = {a.data(), b.data()};
  const auto step = [&] {
    for (int i = 0; i < 10; ++i) {
      first->wait(*read);
      first->copy(view(a), view(b));
      first->record(*written);
      second->wait(*written);
      device().kernels().reduce(*second, DType::kInt32, ReduceOp::kSum, b.data(), sources, 1000,
                                1.0);
      second->record(*read);
    }
    wait_for(*read);
    wait_for(*written);
  };
  // The queues grow beyond the size that a step needs, because work is held first.
  hold(*first);
  const AllocationCounts before = device().allocation_counts();
  for (int i = 0; i < 20; ++i) {
    first->wait(*read);
    first->copy(view(a), view(b));
    first->record(*written);
    second->wait(*written);
    second->copy(view(b), view(a));
    second->record(*read);
  }
  release();
  step();
  const AllocationCounter heap;
  for (int i = 0; i < 50; ++i) step();
  if (under_test_->counts_heap()) {
    EXPECT_EQ(heap.calls(), 0u);
  }
  const AllocationCounts after = device().allocation_counts();
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_EQ(after.streams, before.streams);
  EXPECT_EQ(after.events, before.events);
}

// --- Bounce buffers of device memory
// --------------------------------------------------------------------

/// Size of each of two device buffers. A bounce buffer has room for both.
constexpr std::size_t kBounced = 1000 * sizeof(std::int32_t);

inline BounceBuffer::Copy bounced(const DeviceMemory& memory, std::size_t offset) {
  return {.offset = offset, .device = memory.data(), .bytes = memory.bytes()};
}

TEST_P(DeviceConformance, ABounceBufferBringsContentsDownAndResultsUp) {
  CopyStreams streams(device());
  BounceBuffer bounce_buffer(streams, 2 * kBounced);
  const DeviceMemory result = upload(numbers(1000, -1));
  const auto callers = device().make_stream();
  const auto written = device().make_event();
  for (int use = 0; use < 3; ++use) {
    const DeviceMemory late = upload(numbers(1000, use));
    const DeviceMemory input = upload(numbers(1000, -9999));
    hold(*callers);
    callers->copy(view(input), view(late));
    device().record(under_test_->as_callers(*callers), *written);
    const BounceBuffer::Copy down[] = {bounced(input, 0)}, up[] = {bounced(result, kBounced)};
    bounce_buffer.begin(down, up, written.get());
    for (int i = 0; i < 10; ++i) {
      under_test_->advance();
      EXPECT_FALSE(bounce_buffer.is_full()) << "before the caller has written it";
      EXPECT_FALSE(bounce_buffer.drain());
    }
    release();
    until([&] { return bounce_buffer.is_full(); });
    const auto* const from = reinterpret_cast<const std::int32_t*>(bounce_buffer.data());
    const auto expected = numbers(1000, use);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), from));
    std::memcpy(bounce_buffer.data() + kBounced, from, kBounced);
    until([&] { return bounce_buffer.drain(); });
    EXPECT_TRUE(bounce_buffer.is_idle());
    EXPECT_EQ(download<std::int32_t>(result), expected);
  }
}

TEST_P(DeviceConformance, ABounceBufferDrainsNoMoreThanItIsTold) {
  CopyStreams streams(device());
  BounceBuffer bounce_buffer(streams, 2 * kBounced);
  const auto before = numbers(1000, -1);
  const DeviceMemory first = upload(before), second = upload(before);
  const BounceBuffer::Copy up[] = {bounced(first, 0), bounced(second, kBounced)};
  const auto sent = numbers(2000);
  bounce_buffer.begin({}, up, nullptr);
  ASSERT_TRUE(bounce_buffer.is_full());
  std::memcpy(bounce_buffer.data(), sent.data(), 2 * kBounced);
  until([&] { return bounce_buffer.drain_first(300 * sizeof(std::int32_t)); });
  auto expected = before;
  std::copy_n(sent.begin(), 300, expected.begin());
  EXPECT_EQ(download<std::int32_t>(first), expected);
  EXPECT_EQ(download<std::int32_t>(second), before);
}

TEST_P(DeviceConformance, ABounceBufferOfNothingWaitsForItsCallerAllTheSame) {
  CopyStreams streams(device());
  BounceBuffer bounce_buffer(streams, 0);
  const auto callers = device().make_stream();
  const auto written = device().make_event();
  hold(*callers);
  device().record(under_test_->as_callers(*callers), *written);
  bounce_buffer.begin({}, {}, written.get());
  EXPECT_FALSE(bounce_buffer.drain());
  release();
  until([&] { return bounce_buffer.drain(); });
}

TEST_P(DeviceConformance, ABounceBufferMayGoWhileItIsFilled) {
  CopyStreams streams(device());
  const DeviceMemory source = upload(numbers(1000));
  const auto callers = device().make_stream();
  const auto written = device().make_event(), end = device().make_event();
  {
    BounceBuffer bounce_buffer(streams, kBounced);
    streams.down();
    hold(*callers);
    device().record(under_test_->as_callers(*callers), *written);
    const BounceBuffer::Copy down[] = {bounced(source, 0)};
    bounce_buffer.begin(down, {}, written.get());
  }
  release();
  streams.down().record(*end);
  wait_for(*end);
}

}  // namespace kolo::test
