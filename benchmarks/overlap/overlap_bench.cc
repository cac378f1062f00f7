#include "benchmarks/overlap/overlap_bench.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <numeric>
#include <utility>

#include "benchmarks/common/exchange.h"
#include "benchmarks/common/samples.h"

namespace kolo::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kGradientsPerLayer = 12;

/// A fixed amount of computation, in registers and the first cache, in place of a backward pass. It
/// takes longer if communication takes the core away, which a wait for the clock would hide.
class ComputeWork {
 public:
  /// Measures a unit while all ranks compute. Collective.
  explicit ComputeWork(Runtime& runtime) {
    values_.fill(1.0f);
    const volatile std::size_t units = kUnitsAtOnce;  // A constant would get a loop of its own.
    // The best of a few: the core's frequency rises first, and other processes may disturb.
    for (int i = 0; i < 5; ++i) {
      runtime.barrier().wait();
      double us = bench::time_us([&] { run(units); }) / static_cast<double>(kUnitsAtOnce);
      max_over_ranks(runtime, {&us, 1});
      unit_us_ = std::min(unit_us_, us);
    }
  }

  /// The units that take `us` microseconds on the slowest rank; equal on all ranks.
  std::size_t units_of(double us) const { return static_cast<std::size_t>(us / unit_us_); }

  /// One function for all callers: loops that are inlined differ in speed by up to two times.
  [[gnu::noinline]] void run(std::size_t units) {
    for (std::size_t unit = 0; unit < units; ++unit) {
      for (float& value : values_) value = value * 0.999f + 0.001f;
      // The compiler must assume that the result is read, so it removes nothing.
      asm volatile("" : : "g"(values_.data()) : "memory");
    }
  }

 private:
  static constexpr std::size_t kUnitsAtOnce = 50'000;
  std::array<float, 1024> values_{};
  double unit_us_ = std::numeric_limits<double>::infinity();
};

/// The backward pass and the update, cut at the gradients.
class Pass {
 public:
  Pass(Runtime& runtime, const OverlapOptions& options) : work_(runtime) {
    const double elements = std::accumulate(options.counts.begin(), options.counts.end(), 0.0);
    for (std::size_t count : options.counts) {
      const double share = static_cast<double>(count) / elements;
      units_.push_back(work_.units_of(options.compute_ms * 1000 * share));
      update_units_.push_back(work_.units_of(options.update_ms * 1000 * share));
    }
  }

  /// Calls `ready` with each gradient once it is computed.
  template <typename Ready>
  void run_backward(Ready&& ready) {
    for (std::size_t i = units_.size(); i-- > 0;) {
      work_.run(units_[i]);
      ready(i);
    }
  }
  /// Calls `await` with each gradient before it is updated, first to last.
  template <typename Await>
  void run_update(Await&& await) {
    for (std::size_t i = 0; i < update_units_.size(); ++i) {
      await(i);
      work_.run(update_units_[i]);
    }
  }

 private:
  ComputeWork work_;
  std::vector<std::size_t> units_, update_units_;
};

/// Microseconds that `work` takes here; all ranks begin together.
template <typename Work>
double time_together_us(Runtime& runtime, const Work& work) {
  runtime.barrier().wait();
  return time_us(work);
}

double median_us(Runtime& runtime, std::vector<double> times) {
  max_over_ranks(runtime, times);
  return summarise(std::move(times)).median;
}

/// Backward pass, communication and update. Returns the microseconds from the end of the backward
/// pass to the sums of the first layer.
double iterate(OverlapSystem& system, Pass& pass) {
  pass.run_backward([&](std::size_t i) { system.ready(i); });
  const auto start = Clock::now();
  Clock::time_point first = start;
  bool is_finished = false;
  pass.run_update([&](std::size_t i) {
    if (!is_finished && !system.await(i)) {
      system.finish();
      is_finished = true;
    }
    if (i < kGradientsPerLayer) first = Clock::now();
  });
  if (!is_finished) system.finish();
  return std::chrono::duration<double, std::micro>(first - start).count();
}

void communicate(OverlapSystem& system, std::size_t gradients) {
  for (std::size_t i = gradients; i-- > 0;) system.ready(i);
  system.finish();
}

/// Every rank gives its number plus one.
std::uint64_t count_wrong(Runtime& runtime, OverlapSystem& system, Pass& pass) {
  const int ranks = runtime.world_size();
  system.fill(static_cast<float>(runtime.rank() + 1));
  iterate(system, pass);
  auto wrong = static_cast<std::int64_t>(
      system.count_other_than(static_cast<float>(ranks * (ranks + 1) / 2)));
  runtime.all_reduce("bench wrong", {&wrong, 1, DType::kInt64}, ReduceOp::kSum).wait();
  return static_cast<std::uint64_t>(wrong);
}

struct Times {
  std::vector<double> communication, iteration, first;
};

}  // namespace

std::vector<std::size_t> transformer_gradients(std::size_t layers, std::size_t width) {
  std::vector<std::size_t> counts;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    for (std::size_t count : std::array<std::size_t, kGradientsPerLayer>{
             width, width, 3 * width * width, 3 * width, width * width, width, width, width,
             4 * width * width, 4 * width, 4 * width * width, width}) {
      counts.push_back(count);
    }
  }
  return counts;
}

std::vector<OverlapRow> measure_overlap(Runtime& runtime,
                                        const std::vector<std::unique_ptr<OverlapSystem>>& systems,
                                        const OverlapOptions& options) {
  Pass pass(runtime, options);
  std::vector<double> compute;
  std::vector<Times> times(systems.size());
  for (int iteration = -options.warmup; iteration < options.iterations; ++iteration) {
    const bool counts = iteration >= 0;
    const double alone = time_together_us(runtime, [&] {
      pass.run_backward([](std::size_t) {});
      pass.run_update([](std::size_t) {});
    });
    if (counts) compute.push_back(alone);
    for (std::size_t s = 0; s < systems.size(); ++s) {
      OverlapSystem& system = *systems[s];
      system.fill(0);  // so that sums which grow in place stay ordinary numbers
      const double communication =
          time_together_us(runtime, [&] { communicate(system, options.counts.size()); });
      double first = 0;
      const double both = time_together_us(runtime, [&] { first = iterate(system, pass); });
      if (!counts) continue;
      times[s].communication.push_back(communication);
      times[s].iteration.push_back(both);
      times[s].first.push_back(first);
    }
  }

  std::vector<OverlapRow> rows;
  const double compute_us = median_us(runtime, compute);
  for (std::size_t s = 0; s < systems.size(); ++s) {
    OverlapRow row{.system = systems[s]->name(),
                   .algorithm = systems[s]->algorithm(),
                   .calls = systems[s]->calls(),
                   .fusion_bytes = systems[s]->fusion_bytes(),
                   .compute_us = compute_us,
                   .communication_us = median_us(runtime, times[s].communication),
                   .iteration_us = median_us(runtime, times[s].iteration),
                   .first_us = median_us(runtime, times[s].first)};
    row.exposed_us = row.iteration_us - row.compute_us;
    row.hidden_percent = 100 * (1 - row.exposed_us / row.communication_us);
    row.wrong = count_wrong(runtime, *systems[s], pass);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace kolo::bench
