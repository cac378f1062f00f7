// Compares every operation on every dtype that it supports, scaled or not, with plain arithmetic.

#include <gmock/gmock.h>

#include <cmath>
#include <complex>
#include <cstring>

#include "comm/base/reduction.h"
#include "comm/kernels/reference_kernels.h"
#include "runtime/calls/operation_calls.h"
#include "tests/support/engine_job.h"
#include "tests/support/node_shapes.h"

namespace kolo {
namespace {

using test::EngineJob;
using test::error_of;

using Value = std::complex<double>;
using Values = std::vector<Value>;
using Bytes = std::vector<std::byte>;

/// Appends the bytes with which a C++ program stores an element of this dtype.
void append_element(Bytes& to, DType dtype, Value value) {
  const auto append = [&](DType number, double part) {
    Bytes bytes(size_of(number));
    reference::convert(number, bytes.data(), DType::kFloat64, &part, 1, 1.0);
    to.insert(to.end(), bytes.begin(), bytes.end());
  };
  switch (dtype) {
    case DType::kComplex64:
    case DType::kComplex128: {
      const DType part = dtype == DType::kComplex64 ? DType::kFloat32 : DType::kFloat64;
      append(part, value.real());
      return append(part, value.imag());
    }
    case DType::kBool:
      return to.push_back(value != Value() ? std::byte{1} : std::byte{0});
    default:
      if (!is_number(dtype)) return to.push_back(static_cast<std::byte>(value.real()));
      return append(dtype, value.real());
  }
}

/// Period with which the values of elements repeat.
constexpr std::size_t kPeriod = 12;

/// Returns `count` elements that repeat `values`.
Bytes bytes_of(DType dtype, const Values& values, std::size_t count) {
  Bytes bytes;
  for (const Value& value : values) append_element(bytes, dtype, value);
  const std::size_t size = count * size_of(dtype);
  const std::size_t period = bytes.size();
  bytes.resize(size);
  // Each copy doubles the filled bytes.
  for (std::size_t done = period; done < size; done *= 2) {
    std::memcpy(bytes.data() + done, bytes.data(), std::min(done, size - done));
  }
  return bytes;
}

/// Returns a small value, so that results are exact in every dtype, with all combinations of truth
/// values. It depends on `element % kPeriod`.
Value value_of(DType dtype, int rank, std::size_t element) {
  const std::size_t mixed = element * 7 + static_cast<std::size_t>(rank) * (element % 3 + 1);
  if (dtype == DType::kBool) return static_cast<double>(mixed % 2);
  const auto real = static_cast<double>(mixed % 4 + 1);
  return is_complex(dtype) ? Value(real, -real - 1) : Value(real);
}

Value combined(ReduceOp op, DType dtype, Value a, Value b) {
  const auto bits = [&](auto combine) {
    return static_cast<double>(
        combine(static_cast<std::int64_t>(a.real()), static_cast<std::int64_t>(b.real())));
  };
  switch (op) {
    case ReduceOp::kSum:
      if (dtype == DType::kBool) return std::max(a.real(), b.real());
      return a + b;
    case ReduceOp::kAverage:
    case ReduceOp::kPremulSum:
      return a + b;
    case ReduceOp::kMin:
      return std::min(a.real(), b.real());
    case ReduceOp::kMax:
      return std::max(a.real(), b.real());
    case ReduceOp::kProd:
      return a * b;
    case ReduceOp::kBitAnd:
      return bits(std::bit_and<>());
    case ReduceOp::kBitOr:
      return bits(std::bit_or<>());
    case ReduceOp::kBitXor:
      return bits(std::bit_xor<>());
  }
  return 0;
}

/// A reduction over the ranks of a job. `scales.before` belongs to rank 0; in a premultiplied sum,
/// the scale of each further rank is twice that of the rank before.
struct ReductionCase {
  ReduceOp op = ReduceOp::kSum;
  DType dtype = DType::kFloat32;
  Scales scales = {};
  std::size_t count = 37;

  Reduction of_rank(int rank) const {
    Scales own = scales;
    if (op == ReduceOp::kPremulSum) own.before *= 1 << rank;
    return {op, own};
  }
  Bytes contribution(int rank) const {
    Values values;
    for (std::size_t i = 0; i < kPeriod; ++i) values.push_back(value_of(dtype, rank, i));
    return bytes_of(dtype, values, count);
  }
  Bytes result(int ranks) const {
    Values results;
    for (std::size_t i = 0; i < kPeriod; ++i) {
      Value result = of_rank(0).scales.before * value_of(dtype, 0, i);
      for (int rank = 1; rank < ranks; ++rank) {
        const Value next = of_rank(rank).scales.before * value_of(dtype, rank, i);
        result = combined(op, dtype, result, next);
      }
      if (op == ReduceOp::kAverage) result /= ranks;
      results.push_back(result * scales.after);
    }
    return bytes_of(dtype, results, count);
  }
  std::string text() const {
    return std::string(to_string(op)) + " " + std::string(to_string(dtype)) + " " +
           std::to_string(count) + (scales == Scales() ? "" : " scaled");
  }
};

std::vector<ReductionCase> cases() {
  std::vector<ReductionCase> cases;
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kEveryReduceOp) {
      if (!takes(op, dtype)) continue;
      cases.push_back({.op = op, .dtype = dtype});
      if (!is_float(dtype) && !is_complex(dtype)) continue;
      for (const Scales scales :
           {Scales{.before = 0.5}, Scales{.after = 4}, Scales{.before = 2, .after = -0.25}}) {
        cases.push_back({.op = op, .dtype = dtype, .scales = scales});
      }
    }
  }
  return cases;
}

Bytes slice(const Bytes& bytes, std::size_t first, std::size_t count) {
  const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(first);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

/// The buffers of one rank in one collective, and their expected contents afterwards.
struct Place {
  Bytes input, result, expected;
  std::shared_ptr<Operation> operation;
};

enum class Verb { kAllReduce, kReduce, kReduceScatter };

/// Runs a case as one collective, and compares the buffers of all ranks byte by byte.
void expect_reduced(EngineJob& job, Verb verb, const ReductionCase& what, bool in_place) {
  const int ranks = job.world_size();
  const int root = ranks - 1;
  ReductionCase parts = what;  // parts of all ranks, for a reduce-scatter
  if (verb == Verb::kReduceScatter) parts.count *= static_cast<std::size_t>(ranks);
  const Bytes all = parts.result(ranks);
  const std::size_t part = what.count * size_of(what.dtype);
  const std::string name =
      std::to_string(static_cast<int>(verb)) + parts.text() + (in_place ? " in place" : "");
  std::vector<Place> places(static_cast<std::size_t>(ranks));
  std::vector<std::shared_ptr<Operation>> operations;
  for (int rank = 0; rank < ranks; ++rank) {
    Place& place = places[static_cast<std::size_t>(rank)];
    const Bytes contribution = parts.contribution(rank);
    place.input = contribution;
    place.result = in_place ? contribution : Bytes(contribution.size());
    place.expected = verb == Verb::kReduce && rank != root ? place.result : all;
    if (verb == Verb::kReduceScatter) {
      const std::size_t first = static_cast<std::size_t>(rank) * part;
      place.expected = slice(all, first, part);
      if (in_place) {
        place.expected = contribution;
        std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(first), part,
                    place.expected.begin() + static_cast<std::ptrdiff_t>(first));
      } else {
        place.result.resize(part);
      }
    }
    OperationPool pool;
    const OperationCalls calls(pool, rank, ranks);
    const auto view = [&](Bytes& bytes) {
      return BufferView(bytes.data(), bytes.size() / size_of(what.dtype), what.dtype);
    };
    const Tensor tensor =
        in_place ? Tensor(view(place.result)) : Tensor(view(place.input), view(place.result));
    const OperationKind kind = verb == Verb::kReduce          ? OperationKind::kReduce
                               : verb == Verb::kReduceScatter ? OperationKind::kReduceScatter
                                                              : OperationKind::kAllReduce;
    operations.push_back(
        job.submit(rank, *calls.make(kind, name, tensor, root, what.of_rank(rank))));
  }
  job.finish(operations);
  for (int rank = 0; rank < ranks; ++rank) {
    const Place& place = places[static_cast<std::size_t>(rank)];
    ASSERT_EQ(error_of(*operations[static_cast<std::size_t>(rank)]), "") << name;
    ASSERT_EQ(place.result, place.expected) << name << ", rank " << rank << " of " << ranks;
    ASSERT_EQ(place.input, parts.contribution(rank)) << name << ": the input has changed";
  }
}

class Reductions : public testing::TestWithParam<std::tuple<std::vector<int>, MemoryKind>> {
 protected:
  EngineJob job(std::uint64_t seed) const {
    const auto& [nodes, memory] = GetParam();
    return EngineJob(ProcessGrid::with_node_sizes(nodes),
                     test::by_hierarchies({.verify_schedules = true}), seed,
                     test::devices_for(memory));
  }
};

TEST_P(Reductions, GiveWhatAPlainComputationGives) {
  for (const Verb verb : {Verb::kAllReduce, Verb::kReduce, Verb::kReduceScatter}) {
    for (const bool in_place : {false, true}) {
      EngineJob job = this->job(7);
      for (const ReductionCase& what : cases()) {
        expect_reduced(job, verb, what, in_place);
        if (HasFatalFailure()) return;
      }
    }
  }
}

class LargeReductions : public Reductions {};

// Contributions are scaled in blocks, and also chunk by chunk through slots.
TEST_P(LargeReductions, AreScaledOnce) {
  for (const Verb verb : {Verb::kAllReduce, Verb::kReduce, Verb::kReduceScatter}) {
    for (const bool in_place : {false, true}) {
      // The last counts are cut into equal chunks, each of which overwrites another in its slot.
      for (const auto& [dtype, count] : {std::pair(DType::kFloat32, std::size_t{60'001}),
                                         std::pair(DType::kBFloat16, std::size_t{60'001}),
                                         std::pair(DType::kComplex128, std::size_t{1} << 16)}) {
        EngineJob job = this->job(8);
        expect_reduced(job, verb,
                       {.op = ReduceOp::kPremulSum,
                        .dtype = dtype,
                        .scales = {.before = 0.5, .after = 2},
                        .count = count},
                       in_place);
        if (HasFatalFailure()) return;
      }
    }
  }
}

const auto kMemories = testing::Values(MemoryKind::kHost, MemoryKind::kDevice);
const auto name_of_nodes = [](const auto& param) {
  std::string name = test::shape_text(std::get<0>(param.param));
  std::erase(name, ' ');
  return name + "_" + std::string(to_string(std::get<MemoryKind>(param.param)));
};
// There are at most four ranks, and a power of two, so that averages are exact.
INSTANTIATE_TEST_SUITE_P(Nodes, Reductions,
                         testing::Combine(testing::Values(std::vector{1}, std::vector{3, 1},
                                                          std::vector{2, 2}),
                                          kMemories),
                         name_of_nodes);
INSTANTIATE_TEST_SUITE_P(Nodes, LargeReductions,
                         testing::Combine(testing::Values(std::vector{2}, std::vector{2, 2}),
                                          kMemories),
                         name_of_nodes);

TEST(ScaledAllReduces, GiveTheSameByEveryAlgorithm) {
  for (const char* algorithm : {"flat", "direct", "ring", "halving_doubling",
                                "hierarchical:direct,ring", "hierarchical:ring,ring"}) {
    EngineJob job(ProcessGrid::with_node_sizes({2, 2}),
                  {.algorithm = algorithm, .verify_schedules = true}, 9);
    for (const bool in_place : {false, true}) {
      for (const Scales scales : {Scales{.before = 0.5, .after = 4}, Scales{.after = 0.5}}) {
        for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kPremulSum, ReduceOp::kMax}) {
          SCOPED_TRACE(algorithm);
          expect_reduced(job, Verb::kAllReduce,
                         {.op = op, .dtype = DType::kFloat32, .scales = scales, .count = 20'011},
                         in_place);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// A loss scale changes from step to step, but the plan remains that of the first use.
TEST(PremultipliedSums, TakeAnotherScaleAtEachUseWithoutANewAgreement) {
  EngineJob job(ProcessGrid::with_node_sizes({2, 1}), {}, 10);
  for (int use = 0; use < 3; ++use) {
    std::vector<std::vector<float>> data(3, std::vector<float>{1, 2, 3});
    std::vector<std::shared_ptr<Operation>> operations;
    for (int rank = 0; rank < 3; ++rank) {
      OperationPool pool;
      const double scale = use * 10 + rank;
      operations.push_back(job.submit(
          rank, *OperationCalls(pool, rank, 3)
                     .make(OperationKind::kAllReduce, "x", data[static_cast<std::size_t>(rank)], 0,
                           {ReduceOp::kPremulSum, {.before = scale}})));
      EXPECT_EQ(operations.back()->signature(), operations.front()->signature());
      EXPECT_TRUE(OperationShape::of(*operations.front()).fits(*operations.back()));
    }
    job.finish(operations);
    const auto sum = static_cast<float>(use * 30 + 3);
    for (const auto& mine : data) {
      EXPECT_THAT(mine, testing::ElementsAre(sum, 2 * sum, 3 * sum));
    }
  }
}

TEST(ReductionCalls, RefuseWhatCannotBeCombined) {
  OperationPool pool;
  const OperationCalls calls(pool, 0, 2);
  std::vector<std::byte> in(64), out(64);
  const auto refusal = [](const std::function<void()>& call) -> std::string {
    try {
      call();
    } catch (const UsageError& e) {
      return e.what();
    }
    return "";
  };
  for (const DType dtype : kAllDTypes) {
    using Kind = OperationKind;
    const BufferView result{out.data(), 2, dtype}, input{in.data(), 2, dtype},
        half{out.data(), 1, dtype};
    for (const ReduceOp op : kEveryReduceOp) {
      const std::vector<std::string> texts = {
          refusal([&] { calls.make(Kind::kAllReduce, "x", result, 0, op); }), refusal([&] {
            calls.make(Kind::kAllReduce, "x", {input, result}, 0, op);
          }),
          refusal([&] {
            calls.make(Kind::kReduce, "x", {input, result}, 0, op);
          }),
          refusal([&] {
            calls.make(Kind::kReduceScatter, "x", {input, half}, 0, op);
          })};
      const std::string expected = "'x': " + std::string(to_string(op)) + " does not take " +
                                   std::string(to_string(dtype)) + ",";
      const testing::Matcher<std::string> is_right =
          takes(op, dtype) ? testing::Matcher<std::string>("") : testing::HasSubstr(expected);
      EXPECT_THAT(texts, testing::Each(is_right));
      BufferView device = result;
      device.memory = MemoryKind::kDevice;
      EXPECT_THAT(refusal([&] { calls.make(Kind::kAllReduce, "x", device, 0, op); }), is_right);
    }
  }
}

}  // namespace
}  // namespace kolo
