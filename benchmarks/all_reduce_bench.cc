#include "benchmarks/all_reduce_bench.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include <fmt/format.h>

#include "comm/collective/reduce_kernels.h"

namespace kolo::bench {
namespace {

/// Enough for a stable mean at small sizes, not too long at large ones.
int default_iterations(std::size_t bytes) {
  constexpr std::size_t kBytesPerRow = std::size_t{1} << 29;
  return static_cast<int>(
      std::clamp<std::size_t>(kBytesPerRow / std::max<std::size_t>(bytes, 1), 20, 1000));
}

/// Contribution of `rank`: 2 where it is the element's turn, else 1. Every sum, product, minimum
/// and maximum is a small integer, exact in all dtypes for up to 127 ranks.
double contribution(int rank, int world_size, std::size_t index) {
  return static_cast<int>(index % static_cast<std::size_t>(world_size)) == rank ? 2 : 1;
}

double expected(ReduceOp op, int world_size) {
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

void fill(const Runtime& runtime, AllReduceRun& run, const AllReduceCase& what) {
  std::vector<double> values(what.count());
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = contribution(runtime.rank(), runtime.world_size(), i);
  std::vector<std::byte> elements(what.bytes);
  convert(what.dtype, elements.data(), DType::kFloat64, values.data(), values.size(), 1.0);
  run.write(elements.data());
}

/// Elements that differ from the one right value, over all ranks.
std::uint64_t count_wrong(Runtime& runtime, AllReduceRun& run, const AllReduceCase& what) {
  // The right value went the same way: rounded to the wire and back.
  double right = expected(what.op, runtime.world_size());
  for (DType dtype : {what.wire.value_or(what.dtype), what.dtype}) {
    std::byte rounded[8];
    convert(dtype, rounded, DType::kFloat64, &right, 1, 1.0);
    convert(DType::kFloat64, &right, dtype, rounded, 1, 1.0);
  }
  std::vector<std::byte> elements(what.bytes);
  run.read(elements.data());
  std::vector<double> values(what.count());
  convert(DType::kFloat64, values.data(), what.dtype, elements.data(), values.size(), 1.0);
  std::int64_t wrong =
      std::count_if(values.begin(), values.end(), [&](double value) { return value != right; });
  runtime.all_reduce("bench wrong", {&wrong, 1, DType::kInt64}, ReduceOp::kSum);
  return static_cast<std::uint64_t>(wrong);
}

struct Measured {
  std::unique_ptr<AllReduceRun> run;
  std::vector<double> times_us;
  std::uint64_t wire_bytes = 0;
  std::uint64_t wrong = 0;
};

void time_round(AllReduceSystem& system, Measured& measured, int iterations) {
  using Clock = std::chrono::steady_clock;
  const std::uint64_t wire_before = system.wire_bytes().value_or(0);
  for (int i = 0; i < iterations; ++i) {
    const auto start = Clock::now();
    measured.run->run();
    measured.times_us.push_back(
        std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  measured.wire_bytes += system.wire_bytes().value_or(0) - wire_before;
}

AllReduceRow summarise(Runtime& runtime, const AllReduceSystem& system, Measured& measured,
                       const AllReduceCase& what) {
  auto& times = measured.times_us;
  runtime.all_reduce(fmt::format("bench times {}", times.size()),
                     {times.data(), times.size(), DType::kFloat64}, ReduceOp::kMax);
  auto wire = static_cast<std::int64_t>(measured.wire_bytes);
  runtime.all_reduce("bench wire", {&wire, 1, DType::kInt64}, ReduceOp::kMax);

  AllReduceRow row{.system = system.name(),
                   .bytes = what.bytes,
                   .count = what.count(),
                   .algorithm = measured.run->algorithm(),
                   .wrong = measured.wrong};
  std::sort(times.begin(), times.end());
  const auto samples = static_cast<double>(times.size());
  row.mean_us = std::accumulate(times.begin(), times.end(), 0.0) / samples;
  row.min_us = times.front();
  row.p99_us = times[std::min(times.size() - 1, static_cast<std::size_t>(samples * 0.99))];
  row.algbw = static_cast<double>(what.bytes) / row.mean_us / 1e3;
  const double n = runtime.world_size();
  row.busbw = row.algbw * 2 * (n - 1) / n;
  if (system.wire_bytes()) row.wire_bytes = static_cast<std::uint64_t>(wire) / times.size();
  return row;
}

}  // namespace

std::vector<AllReduceRow> measure_all_reduce(
    Runtime& runtime, const std::vector<std::unique_ptr<AllReduceSystem>>& systems,
    const AllReduceOptions& options, const std::function<void(const AllReduceRow&)>& report) {
  std::vector<AllReduceRow> rows;
  for (std::size_t bytes : options.sizes) {
    AllReduceCase what = options.what;
    what.bytes = bytes / size_of(what.dtype) * size_of(what.dtype);
    const int iterations = options.iterations > 0 ? options.iterations : default_iterations(bytes);
    const int per_round = std::max(1, iterations / options.rounds);

    std::vector<Measured> measured(systems.size());
    for (std::size_t i = 0; i < systems.size(); ++i) {
      measured[i].run = systems[i]->prepare(what);
      fill(runtime, *measured[i].run, what);
      measured[i].run->run();
      measured[i].wrong = count_wrong(runtime, *measured[i].run, what);
    }
    for (int round = 0; round < options.rounds; ++round) {
      for (std::size_t i = 0; i < systems.size(); ++i) {
        // Sums grow in place; filled afresh they stay ordinary numbers for a round.
        fill(runtime, *measured[i].run, what);
        for (int warmup = 0; warmup < options.warmup; ++warmup) measured[i].run->run();
        time_round(*systems[i], measured[i], per_round);
      }
    }
    for (std::size_t i = 0; i < systems.size(); ++i) {
      rows.push_back(summarise(runtime, *systems[i], measured[i], what));
      report(rows.back());
    }
  }
  return rows;
}

}  // namespace kolo::bench
