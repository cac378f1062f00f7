// An operation on device memory that uses the device's library makes one call, in the caller's
// memory. Other operations make no call.

#include <gtest/gtest.h>

#include <numeric>

#include "tests/runtime/device/counted_job.h"
#include "tests/support/calls/sized_tensor.h"

namespace kolo {
namespace {

using test::CountedJob;
using BuffersOfRanks = std::vector<test::CollectiveBuffers>;
using Kind = OperationKind;

TEST(NativeCollectives, TakeOneCallOfTheLibrary) {
  CountedJob counted({3});
  test::run_all(counted, [&](const std::string& name) { EXPECT_EQ(counted.calls(), 1U) << name; });
  std::vector<float> data(40, 1);
  std::vector<std::vector<float>> copies(3, data);
  counted.run([&](const OperationCalls& calls, int rank) {
    return calls.make(Kind::kBroadcast, "x", copies[static_cast<std::size_t>(rank)], 1);
  });
  EXPECT_EQ(counted.calls(), 1U);
}

TEST(NativeCollectives, TakeMemoryOnlyForWhatResultsWouldReplace) {
  CountedJob counted({2});
  std::size_t allocations = 0;
  test::run_all(counted, [&](const std::string& name) {
    if (name == "all_to_all in place") ++allocations;
    EXPECT_EQ(counted.job.device(0).allocation_counts().allocations, allocations) << name;
  });
}

TEST(NativeCollectives, SumWithoutABucket) {
  for (const std::vector<int>& nodes : {std::vector<int>{3}, std::vector<int>{2, 2}}) {
    for (const bool in_place : {false, true}) {
      CountedJob counted(nodes);
      const std::vector<float> input(40, 1);
      std::vector<std::vector<float>> sums(static_cast<std::size_t>(counted.ranks()), input);
      const std::size_t before = counted.job.device(0).allocation_counts().allocations;
      counted.run([&](const OperationCalls& calls, int rank) {
        std::vector<float>& mine = sums[static_cast<std::size_t>(rank)];
        return calls.make(Kind::kAllReduce, "x", in_place ? Tensor(mine) : Tensor(input, mine));
      });
      EXPECT_EQ(sums[0], std::vector<float>(40, static_cast<float>(counted.ranks())));
      EXPECT_EQ(input, std::vector<float>(40, 1));
      EXPECT_EQ(counted.calls(), 1U);
      EXPECT_EQ(counted.job.device(0).allocation_counts().allocations, before);
    }
  }
}

TEST(NativeCollectives, SumSeveralTensorsInOneBucket) {
  for (const bool in_place : {false, true}) {
    CountedJob counted({3});
    const std::vector<float> input(40, 1);
    std::vector<std::vector<float>> sums(3, std::vector<float>(40, 1));
    counted.run([&](const OperationCalls& calls, int rank) {
      float* const mine = sums[static_cast<std::size_t>(rank)].data();
      const auto tensor = [&](std::size_t first, std::size_t count) {
        const BufferView sum{mine + first, count};
        return in_place ? Tensor(sum) : Tensor({input.data() + first, count}, sum);
      };
      const Tensor each[] = {tensor(0, 7), tensor(7, 0), tensor(7, 33)};
      return calls.make(Kind::kAllReduce, "x", each);
    });
    for (const auto& mine : sums) EXPECT_EQ(mine, std::vector<float>(40, 3));
    EXPECT_EQ(counted.calls(), 1U);
  }
}

TEST(NativeCollectives, SumParts) {
  CountedJob counted({2});
  std::vector<std::vector<float>> in(2, std::vector<float>(8, 1)), out(2, std::vector<float>(4));
  const auto scatter_sum = [&](const std::string& name, const Reduction& reduction) {
    counted.run([&](const OperationCalls& calls, int rank) {
      const auto me = static_cast<std::size_t>(rank);
      return calls.make(Kind::kReduceScatter, name, {in[me], out[me]}, 0, reduction);
    });
  };
  scatter_sum("plain", ReduceOp::kMax);
  EXPECT_EQ(counted.calls(), 1U);
  scatter_sum("average", ReduceOp::kAverage);
  EXPECT_EQ(counted.calls(), 1U);
  EXPECT_EQ(out[1], std::vector<float>(4, 1));
  scatter_sum("scaled", {ReduceOp::kSum, {.before = 0.5, .after = 3}});
  EXPECT_EQ(counted.calls(), 1U);
  EXPECT_EQ(out[1], std::vector<float>(4, 3));
  scatter_sum("premultiplied", {ReduceOp::kPremulSum, {.before = 2}});
  EXPECT_EQ(counted.calls(), 1U);
  EXPECT_EQ(out[0], std::vector<float>(4, 4));
}

TEST(NativeCollectives, TakeOneCallForSeveralTensors) {
  CountedJob counted({2});
  std::vector<std::vector<float>> in(2, std::vector<float>(8, 1)), out(2, std::vector<float>(4));
  const auto scatter_list = [&](const std::string& name, std::size_t tensors,
                                const Reduction& reduction = ReduceOp::kSum) {
    counted.run([&](const OperationCalls& calls, int rank) {
      const auto me = static_cast<std::size_t>(rank);
      const std::size_t count = 4 / tensors;
      std::vector<Tensor> each;
      for (std::size_t i = 0; i < tensors; ++i) {
        each.push_back(
            {{in[me].data() + 2 * i * count, 2 * count}, {out[me].data() + i * count, count}});
      }
      return calls.make(Kind::kReduceScatter, name, each, 0, reduction);
    });
  };
  scatter_list("several", 2);
  EXPECT_EQ(counted.calls(), 1U);
  EXPECT_EQ(out[1], std::vector<float>(4, 2));
  scatter_list("a list of one", 1);
  EXPECT_EQ(counted.calls(), 1U);
  scatter_list("several, scaled", 2, {ReduceOp::kSum, {.before = 2, .after = 0.25}});
  EXPECT_EQ(counted.calls(), 1U);
  EXPECT_EQ(out[1], std::vector<float>(4, 1));
}

TEST(NativeCollectives, OfSeveralTensorsGoWithoutPinnedMemory) {
  CountedJob counted({3});
  const std::size_t before = counted.job.device(0).allocation_counts().allocations;
  constexpr std::size_t kTensors = 3, kMost = 9 * 5;
  const std::vector<Kind> kinds{Kind::kBroadcast, Kind::kReduce, Kind::kReduceScatter,
                                Kind::kAllGather, Kind::kGather, Kind::kScatter,
                                Kind::kAllToAll};
  for (const Kind kind : kinds) {
    std::vector<std::vector<float>> in(3, std::vector<float>(kTensors * kMost, 1)), out(in);
    counted.run([&](const OperationCalls& calls, int rank) {
      const auto me = static_cast<std::size_t>(rank);
      std::vector<Tensor> each;
      for (std::size_t i = 0; i < kTensors; ++i) {
        each.push_back(
            test::Caller{kind, rank, 3}.tensor(i == 1 ? 0 : 3 + i, {}, in[me].data() + i * kMost,
                                               out[me].data() + i * kMost, DType::kFloat32));
      }
      return calls.make(kind, "kind " + std::to_string(static_cast<int>(kind)), each, 1);
    });
    EXPECT_EQ(counted.calls(), 1U) << "kind " << static_cast<int>(kind);
  }
  EXPECT_EQ(counted.job.device(0).allocation_counts().allocations, before);
}

TEST(NativeCollectives, ScaleSumsForAllInABucket) {
  for (const std::vector<int>& nodes : {std::vector<int>{1}, std::vector<int>{3}, {2, 2}}) {
    CountedJob counted(nodes);
    const auto ranks = static_cast<std::size_t>(counted.ranks());
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    const auto n = static_cast<float>(ranks);
    const std::vector<float> input(40, 4);
    std::vector<std::vector<float>> sums(ranks, std::vector<float>(40));
    std::vector<float> weights(ranks);
    const auto sum = [&](const std::string& name, ReduceOp op, Scales scales, bool in_place) {
      for (auto& mine : sums) mine = input;
      counted.run([&](const OperationCalls& calls, int rank) {
        const auto me = static_cast<std::size_t>(rank);
        Scales own = scales;
        own.before += weights[me];
        return calls.make(Kind::kAllReduce, name,
                          in_place ? Tensor(sums[me]) : Tensor(input, sums[me]), 0, {op, own});
      });
      EXPECT_EQ(counted.calls(), ranks > 1 ? 1U : 0U) << name;
      for (const auto& mine : sums) EXPECT_EQ(mine, sums[0]);
      return sums[0];
    };
    for (const bool in_place : {true, false}) {
      SCOPED_TRACE(in_place);
      const std::string place = in_place ? " in place" : "";
      const auto all = [](float value) { return std::vector<float>(40, value); };
      EXPECT_EQ(sum("sum" + place, ReduceOp::kSum, {.before = 0.5, .after = 3}, in_place),
                all(6 * n));
      EXPECT_EQ(sum("average" + place, ReduceOp::kAverage, {.after = 0.25}, in_place), all(1));
      EXPECT_EQ(sum("max" + place, ReduceOp::kMax, {.before = 2}, in_place), all(8));
      for (const float use : {1.0F, 2.0F}) {
        float of_all = 0;
        for (std::size_t rank = 0; rank < ranks; ++rank) {
          weights[rank] = use + static_cast<float>(rank);
          of_all += 4 * weights[rank];
        }
        EXPECT_EQ(sum("weighted" + place, ReduceOp::kPremulSum, {.before = 0}, in_place),
                  all(of_all));
        weights.assign(ranks, 0);
      }
    }
  }
}

/// Returns a rank's expected buffers after a sum in which rank r has the weight `weight(r)`.
std::vector<float> weighted(const CollectiveSpec& spec, int rank, bool in_place,
                            const std::function<float(int)>& weight) {
  std::vector<float> expected;
  for (const CollectiveSpec::Part& part : spec.parts()) {
    if (!part.receives(rank) && !in_place) continue;
    const std::vector<float> unit = test::pattern(part.extent, 1);
    float factor = static_cast<float>(rank + 1);
    if (part.receives(rank)) {
      factor = 0;
      for (const int each : part.contributors) {
        factor += static_cast<float>(each + 1) * weight(each);
      }
    }
    for (const float value : unit) expected.push_back(value * factor);
  }
  return expected;
}

TEST(NativeCollectives, ScaleSumsForOneRankInABucket) {
  for (const std::vector<int>& nodes : {std::vector<int>{1}, std::vector<int>{3}, {2, 2}}) {
    CountedJob counted(nodes);
    std::vector<std::size_t> counts;
    for (int rank = 0; rank < counted.ranks(); ++rank) {
      counts.push_back(static_cast<std::size_t>(7 + 30 * (rank % 3)));
    }
    const int root = counted.ranks() - 1;
    const auto total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    const auto run = [&](const CollectiveSpec& spec, bool in_place, ReduceOp op, Scales scales,
                         bool weighs, float factor) {
      const std::string called = std::to_string(static_cast<int>(spec.kind)) + " " +
                                 std::to_string(static_cast<int>(op)) + " " +
                                 std::to_string(scales.after) + (in_place ? " in place" : "");
      BuffersOfRanks buffers;
      for (int rank = 0; rank < counted.ranks(); ++rank) {
        buffers.push_back(test::buffers_for(spec, rank, in_place));
      }
      counted.run([&](const OperationCalls& calls, int rank) {
        test::CollectiveBuffers& mine = buffers[static_cast<std::size_t>(rank)];
        Scales own = scales;
        if (weighs) own.before = static_cast<float>(rank + 1);
        const bool scatters = spec.kind == CollectiveKind::kReduceScatter;
        const PartCounts parts = scatters ? PartCounts(counts) : PartCounts();
        const Tensor tensor =
            in_place ? Tensor(mine.result, parts) : Tensor(mine.input, mine.result, parts);
        return calls.make(scatters ? Kind::kReduceScatter : Kind::kReduce, called, tensor, root,
                          {op, own});
      });
      EXPECT_EQ(counted.calls(), counted.ranks() > 1 ? 1U : 0U) << called;
      for (int rank = 0; rank < counted.ranks(); ++rank) {
        EXPECT_EQ(
            buffers[static_cast<std::size_t>(rank)].result,
            weighted(spec, rank, in_place,
                     [&](int of) { return factor * (weighs ? static_cast<float>(of + 1) : 1); }))
            << called << ", rank " << rank << " of " << counted.ranks();
      }
    };
    for (const CollectiveSpec& spec : {CollectiveSpec::reduce(root, counted.ranks(), total),
                                       CollectiveSpec::reduce_scatter(counts)}) {
      for (const bool in_place : {false, true}) {
        run(spec, in_place, ReduceOp::kSum, {.before = 0.5, .after = 3}, false, 1.5F);
        run(spec, in_place, ReduceOp::kPremulSum, {}, true, 1);
        run(spec, in_place, ReduceOp::kPremulSum, {.after = 0.25}, true, 0.25F);
      }
    }
  }
}

TEST(NativeCollectives, LeaveSumsOfBitsToTheHost) {
  CountedJob counted({3});
  std::vector<std::vector<std::int32_t>> data;
  for (int rank = 0; rank < 3; ++rank) data.emplace_back(40, 1 << rank);
  counted.run([&](const OperationCalls& calls, int rank) {
    return calls.make(Kind::kAllReduce, "bits", data[static_cast<std::size_t>(rank)], 0,
                      ReduceOp::kBitOr);
  });
  EXPECT_EQ(counted.calls(), 0U);
  for (const auto& mine : data) EXPECT_EQ(mine, std::vector<std::int32_t>(40, 7));
}

TEST(NativeCollectives, ExchangeSeveralTensorsInPlace) {
  for (const std::vector<int>& nodes : {std::vector<int>{1}, std::vector<int>{3}, {2, 2}}) {
    CountedJob counted(nodes);
    const int ranks = counted.ranks();
    const auto filled = [&](auto value) {
      std::vector<float> buffer;
      for (int other = 0; other < ranks; ++other) buffer.insert(buffer.end(), 5, value(other));
      return buffer;
    };
    std::vector<std::vector<float>> first, second;
    for (int rank = 0; rank < ranks; ++rank) {
      first.push_back(filled([&](int to) { return static_cast<float>(10 * rank + to); }));
      second.push_back(filled([&](int to) { return static_cast<float>(-10 * rank - to); }));
    }
    counted.run([&](const OperationCalls& calls, int rank) {
      const auto me = static_cast<std::size_t>(rank);
      const Tensor each[] = {first[me], second[me]};
      return calls.make(Kind::kAllToAll, "x", each);
    });
    EXPECT_EQ(counted.calls(), 1U);
    for (int rank = 0; rank < ranks; ++rank) {
      const auto me = static_cast<std::size_t>(rank);
      EXPECT_EQ(first[me], filled([&](int from) { return static_cast<float>(10 * from + rank); }));
      EXPECT_EQ(second[me],
                filled([&](int from) { return static_cast<float>(-10 * from - rank); }));
    }
  }
}

TEST(NativeCollectives, MoveElementsOfAnyDtype) {
  CountedJob counted({2});
  std::vector<std::vector<char>> in(2), out(2, std::vector<char>(32));
  for (std::size_t rank = 0; rank < 2; ++rank) {
    in[rank].assign(16, static_cast<char>('a' + rank));
  }
  std::vector<char> expected = in[0];
  expected.insert(expected.end(), in[1].begin(), in[1].end());
  for (const DType dtype : {DType::kBool, DType::kFloat8E4M3, DType::kComplex64, DType::kInt8}) {
    counted.run([&](const OperationCalls& calls, int rank) {
      const auto me = static_cast<std::size_t>(rank);
      return calls.make(Kind::kAllGather, std::string(to_string(dtype)),
                        {{in[me].data(), 16 / size_of(dtype), dtype},
                         {out[me].data(), 32 / size_of(dtype), dtype}});
    });
    EXPECT_EQ(counted.calls(), 1U) << to_string(dtype);
    for (auto& mine : out) EXPECT_EQ(std::exchange(mine, std::vector<char>(32)), expected);
  }
}

TEST(NativeCollectives, OfAllReducesAreTakenWhereAnOptionSaysSo) {
  const std::string slow = "device_latency_us=1000,staging_latency_us=1";
  const auto calls_of = [](const std::vector<int>& nodes, const Options& options) {
    CountedJob counted(nodes, options);
    std::vector<std::vector<float>> sums(static_cast<std::size_t>(counted.ranks()),
                                         std::vector<float>(40, 1));
    counted.run([&](const OperationCalls& calls, int rank) {
      return calls.make(Kind::kAllReduce, "x", sums[static_cast<std::size_t>(rank)]);
    });
    EXPECT_EQ(sums[0], std::vector<float>(40, static_cast<float>(counted.ranks())));
    return std::pair(counted.calls(), counted.calls_in_node() > 0);
  };
  for (const std::vector<int>& nodes : {std::vector<int>{2}, {2, 2}}) {
    EXPECT_EQ(calls_of(nodes, {.link_costs = slow}), std::pair(std::uint64_t{0}, false));
    EXPECT_EQ(calls_of(nodes, {.algorithm = "native", .link_costs = slow}).first, 1U);
  }
  EXPECT_TRUE(calls_of({2, 2}, {.algorithm = "hierarchical", .link_costs = slow}).second);
}

TEST(NativeCollectives, AreTakenWhereTheModelOrAnOptionSaysSo) {
  CountedJob slow({2}, {.link_costs = "device_latency_us=1000,staging_latency_us=1"});
  test::run_all(slow, [&](const std::string& name) { EXPECT_EQ(slow.calls(), 0U) << name; });
  CountedJob asked(
      {2}, {.algorithm = "native", .link_costs = "device_latency_us=1000,staging_latency_us=1"});
  test::run_all(asked, [&](const std::string& name) { EXPECT_EQ(asked.calls(), 1U) << name; });
  CountedJob host({2}, {.algorithm = "direct"});
  test::run_all(host, [&](const std::string& name) { EXPECT_EQ(host.calls(), 0U) << name; });
}

}  // namespace
}  // namespace kolo
