#include "benchmarks/all_reduce/checked_sums.h"

#include <cstring>

#include "comm/kernels/reduce_kernels.h"

namespace kolo::bench {
namespace {

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

std::uint64_t over_all_ranks(Runtime& runtime, std::int64_t count) {
  runtime.all_reduce("bench wrong", {&count, 1, DType::kInt64}, ReduceOp::kSum);
  return static_cast<std::uint64_t>(count);
}

}  // namespace

CheckedSums::CheckedSums(const Runtime& runtime, const AllReduceCase& what)
    : contribution_(what.count() * size_of(what.dtype)) {
  const std::size_t size = size_of(what.dtype);
  const auto ranks = static_cast<std::size_t>(runtime.world_size());
  const auto one = element(what.dtype, 1), two = element(what.dtype, 2);
  for (std::size_t i = 0; i < what.count(); ++i) {
    const bool my_turn = i % ranks == static_cast<std::size_t>(runtime.rank());
    std::memcpy(contribution_.data() + i * size, (my_turn ? two : one).data(), size);
  }
  // The right value takes the same path: rounded to the wire and back.
  double right = result_of(what.op, runtime.world_size());
  const DType wire = what.wire.value_or(what.dtype);
  convert(DType::kFloat64, &right, wire, element(wire, right).data(), 1, 1.0);
  right_ = element(what.dtype, right);
}

std::uint64_t CheckedSums::count_wrong(Runtime& runtime, AllReduceRun& run) const {
  std::vector<std::byte> sums(contribution_.size());
  run.read(sums.data());
  std::int64_t wrong = 0;
  for (std::size_t at = 0; at < sums.size(); at += right_.size()) {
    wrong += std::memcmp(sums.data() + at, right_.data(), right_.size()) != 0;
  }
  return over_all_ranks(runtime, wrong);
}

std::uint64_t CheckedSums::count_changed(Runtime& runtime, AllReduceRun& run) const {
  std::vector<std::byte> now(contribution_.size());
  run.read_contribution(now.data());
  const std::size_t size = right_.size();
  std::int64_t changed = 0;
  for (std::size_t at = 0; at < now.size(); at += size) {
    changed += std::memcmp(now.data() + at, contribution_.data() + at, size) != 0;
  }
  return over_all_ranks(runtime, changed);
}

}  // namespace kolo::bench
