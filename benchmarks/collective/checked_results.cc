#include "benchmarks/collective/checked_results.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "benchmarks/collective/sparse_rows.h"
#include "comm/kernels/combine.h"
#include "comm/kernels/reduce_kernels.h"
#include "runtime/buckets/storage_type.h"

namespace kolo::bench {
namespace {

/// Values of elements that are only moved are from 1 to this.
constexpr int kMostValue = 100;

std::size_t summand(int rank, int ranks, std::size_t element) {
  return element % static_cast<std::size_t>(ranks) == static_cast<std::size_t>(rank) ? 2 : 1;
}

std::size_t moved(int rank, std::size_t element) {
  return 1 + (element + 7 * static_cast<std::size_t>(rank)) % kMostValue;
}

double combined(ReduceOp op, double a, double b) {
  return combine::visit_op(op, [&]<typename Op>(Op) -> double {
    if constexpr (combine::Combines<Op, double>) {
      return Op::apply(a, b);
    } else {
      return Op::apply(static_cast<int>(a), static_cast<int>(b));
    }
  });
}

/// Returns the result for an element to which rank `doubled` contributes 2 and other ranks 1. In
/// bool, that rank contributes false and the others true.
double result_of(const CollectiveCase& what, int ranks, int doubled) {
  const bool is_bool = what.dtype == DType::kBool;
  const ReduceOp op = is_bool ? carried(what.op, DType::kBool) : what.op;
  std::optional<double> result;
  for (int rank = 0; rank < ranks; ++rank) {
    double value = rank != doubled ? 1 : is_bool ? 0 : 2;
    if (op == ReduceOp::kPremulSum) value *= scale_of(rank);
    result = result ? combined(op, *result, value) : value;
  }
  return op == ReduceOp::kAverage ? *result / ranks : *result;
}

std::vector<std::byte> number(DType dtype, double value) {
  std::vector<std::byte> bytes(size_of(dtype));
  convert(dtype, bytes.data(), DType::kFloat64, &value, 1, 1.0);
  return bytes;
}

void append(std::vector<std::byte>& to, const std::vector<std::byte>& bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

/// Returns the bytes of an element with `value`. The imaginary part of a complex number is the
/// negative of its real part; a bool is the lowest bit of `value`.
std::vector<std::byte> element(DType dtype, double value) {
  if (dtype == DType::kBool) value = static_cast<int>(value) % 2;
  const DType storage = StorageType::of(dtype).dtype;
  std::vector<std::byte> bytes = number(storage, value);
  if (is_complex(dtype)) append(bytes, number(storage, -value));
  return bytes;
}

std::vector<std::byte> right_result(const CollectiveCase& what, int ranks, int doubled) {
  double result = result_of(what, ranks, doubled);
  // The expected result is rounded to the wire dtype and back, like a real result.
  if (what.wire)
    convert(DType::kFloat64, &result, *what.wire, number(*what.wire, result).data(), 1, 1.0);
  return element(what.dtype, result);
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
  runtime.all_reduce("bench wrong", {&count, 1, DType::kInt64}, ReduceOp::kSum).wait();
  return static_cast<std::uint64_t>(count);
}

}  // namespace

CheckedResults::CheckedResults(const Runtime& runtime, const CollectiveCase& what)
    : element_bytes_(size_of(what.dtype)) {
  const int ranks = runtime.world_size();
  std::vector<std::vector<std::byte>> elements;  // by value
  const int most = std::max(kMostValue, ranks + 1);
  for (int value = 0; value <= most; ++value) elements.push_back(element(what.dtype, value));
  if (what.verb == Verb::kSparseRows) {
    add_rows(what, runtime.rank(), ranks, elements);
    return;
  }
  std::vector<std::vector<std::byte>> results;  // by the rank that contributes 2
  for (int rank = 0; rank < ranks && reduces(what.verb); ++rank) {
    results.push_back(right_result(what, ranks, rank));
  }
  const CollectiveSpec spec = what.spec(ranks);
  for (const CollectiveSpec::Part& part : spec.parts()) {
    const bool contributes = part.contributes(runtime.rank());
    const bool receives = part.receives(runtime.rank());
    if (!contributes && !receives) continue;
    for (std::size_t i = part.extent.offset; i < part.extent.end(); ++i) {
      const auto from = [&](int rank) -> const std::vector<std::byte>& {
        return elements[part.sums() ? summand(rank, ranks, i) : moved(rank, i)];
      };
      if (contributes) append(contribution_, from(runtime.rank()));
      if (!receives) continue;
      append(right_, part.sums() ? results[i % results.size()] : from(part.contributors.front()));
    }
  }
}

void CheckedResults::add_rows(const CollectiveCase& what, int rank, int ranks,
                              const std::vector<std::vector<std::byte>>& elements) {
  std::vector<std::vector<bool>> drawn;
  for (int each = 0; each < ranks; ++each) drawn.push_back(rows_drawn(what, each, 0));
  for (std::size_t i = 0; i < what.count(); ++i) {
    std::size_t mine = 0, sum = 0;
    for (int each = 0; each < ranks; ++each) {
      if (!drawn[static_cast<std::size_t>(each)][i / what.width]) continue;
      sum += summand(each, ranks, i);
      if (each == rank) mine = summand(each, ranks, i);
    }
    append(contribution_, elements[mine]);
    append(right_, elements[sum]);
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
