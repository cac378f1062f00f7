#include "benchmarks/collective/checked_results.h"

#include <algorithm>
#include <cstring>

#include "comm/kernels/reduce_kernels.h"

namespace kolo::bench {
namespace {

/// Elements that are moved have values from 1 to this.
constexpr int kMostValue = 100;

std::size_t summand(int rank, int ranks, std::size_t element) {
  return element % static_cast<std::size_t>(ranks) == static_cast<std::size_t>(rank) ? 2 : 1;
}

std::size_t moved(int rank, std::size_t element) {
  return 1 + (element + 7 * static_cast<std::size_t>(rank)) % kMostValue;
}

double result_of(ReduceOp op, int world_size) {
  switch (op) {
    case ReduceOp::kSum:
      return world_size + 1;
    case ReduceOp::kAverage:
      return static_cast<double>(world_size + 1) / world_size;
    case ReduceOp::kMin:
      return world_size == 1 ? 2 : 1;
    case ReduceOp::kMax:
    case ReduceOp::kProd:
      break;
  }
  return 2;
}

std::vector<std::byte> element(DType dtype, double value) {
  std::vector<std::byte> bytes(size_of(dtype));
  convert(dtype, bytes.data(), DType::kFloat64, &value, 1, 1.0);
  return bytes;
}

std::int64_t count_different(const std::vector<std::byte>& a, const std::vector<std::byte>& b,
                             std::size_t element_bytes) {
  std::int64_t different = 0;
  for (std::size_t at = 0; at < a.size(); at += element_bytes) {
    different += std::memcmp(a.data() + at, b.data() + at, element_bytes) != 0;
  }
  return different;
}

std::uint64_t over_all_ranks(Runtime& runtime, std::int64_t count) {
  runtime.all_reduce("bench wrong", {&count, 1, DType::kInt64}, ReduceOp::kSum);
  return static_cast<std::uint64_t>(count);
}

}  // namespace

CheckedResults::CheckedResults(const Runtime& runtime, const CollectiveCase& what)
    : element_bytes_(size_of(what.dtype)) {
  const int ranks = runtime.world_size();
  std::vector<std::vector<std::byte>> elements;  // by value
  for (int value = 0; value <= kMostValue; ++value) elements.push_back(element(what.dtype, value));
  // The right sum takes the same path as others: rounded to the wire and back.
  double sum = result_of(what.op, ranks);
  const DType wire = what.wire.value_or(what.dtype);
  convert(DType::kFloat64, &sum, wire, element(wire, sum).data(), 1, 1.0);
  const std::vector<std::byte> right_sum = element(what.dtype, sum);
  const auto append = [](std::vector<std::byte>& to, const std::vector<std::byte>& value) {
    to.insert(to.end(), value.begin(), value.end());
  };
  for (const Goal::Part& part : what.goal(ranks).parts) {
    const bool contributes = part.contributes(runtime.rank());
    const bool receives = part.receives(runtime.rank());
    if (!contributes && !receives) continue;
    for (std::size_t i = part.extent.offset; i < part.extent.end(); ++i) {
      const auto from = [&](int rank) -> const std::vector<std::byte>& {
        return elements[part.sums() ? summand(rank, ranks, i) : moved(rank, i)];
      };
      if (contributes) append(contribution_, from(runtime.rank()));
      if (receives) append(right_, part.sums() ? right_sum : from(part.contributors.front()));
    }
  }
}

std::uint64_t CheckedResults::count_wrong(Runtime& runtime, CollectiveRun& run) const {
  std::vector<std::byte> result(right_.size());
  run.read(result.data());
  return over_all_ranks(runtime, count_different(result, right_, element_bytes_));
}

std::uint64_t CheckedResults::count_changed(Runtime& runtime, CollectiveRun& run) const {
  std::vector<std::byte> now(contribution_.size());
  run.read_contribution(now.data());
  return over_all_ranks(runtime, count_different(now, contribution_, element_bytes_));
}

}  // namespace kolo::bench
