#include "benchmarks/overlap/overlap_bench.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <map>
#include <numeric>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "benchmarks/common/exchange.h"
#include "benchmarks/common/host_memory.h"
#include "benchmarks/common/samples.h"
#include "comm/base/check.h"

namespace kolo::bench {
namespace {

std::size_t total(const std::vector<std::size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

std::uint64_t count_others(std::span<const float> values, float value) {
  return static_cast<std::uint64_t>(
      std::ranges::count_if(values, [&](float x) { return x != value; }));
}

class KoloOverlap final : public OverlapSystem {
 public:
  KoloOverlap(Runtime& runtime, const std::vector<std::size_t>& counts, Home home)
      : fusion_bytes_(runtime.options().fusion_bytes),
        memory_(in_arena(home) ? HostMemory() : HostMemory(total(counts) * sizeof(float))),
        gradients_(runtime.register_gradients("model", specs(counts),
                                              {.op = ReduceOp::kSum, .compression = "none"})) {}

  std::string name() const override { return "kolo"; }
  std::string algorithm() const override { return gradients_.plan().algorithm; }
  Calls calls() const override { return Calls::kBuckets; }
  std::optional<std::size_t> fusion_bytes() const override { return fusion_bytes_; }
  void ready(std::size_t index) override { gradients_.ready(index); }
  bool await(std::size_t index) override {
    gradients_.wait(index);
    return true;
  }
  void finish() override { gradients_.wait(); }

  void fill(float value) override {
    for (std::size_t i = 0; i < gradients_.size(); ++i) std::ranges::fill(values(i), value);
  }
  std::uint64_t count_other_than(float value) override {
    std::uint64_t others = 0;
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      others += count_others(values(i), value);
    }
    return others;
  }

 private:
  std::vector<GradientSpec> specs(const std::vector<std::size_t>& counts) {
    std::vector<GradientSpec> specs;
    auto* next = reinterpret_cast<float*>(memory_.data());
    for (std::size_t count : counts) {
      specs.push_back(
          {.name = fmt::format("gradient {}", specs.size()), .shape = {count}, .data = next});
      if (next != nullptr) next += count;
    }
    return specs;
  }
  std::span<float> values(std::size_t index) {
    const BufferView view = gradients_.view(index);
    return {static_cast<float*>(view.data), view.count};
  }

  std::size_t fusion_bytes_;
  HostMemory memory_;
  GradientSet gradients_;
};

/// Sums gradients by blocking calls: one on adjacent gradients, one on a buffer to and from which
/// gradients are copied, or one per gradient. `counts` holds the elements of each run.
class BlockingOverlap final : public OverlapSystem {
 public:
  BlockingOverlap(std::string name, Calls calls, std::vector<std::unique_ptr<CollectiveRun>> runs,
                  std::vector<std::size_t> counts)
      : name_(std::move(name)),
        calls_(calls),
        runs_(std::move(runs)),
        counts_(std::move(counts)),
        memory_(calls == Calls::kPacked ? HostMemory(counts_[0] * sizeof(float)) : HostMemory()),
        separate_(reinterpret_cast<float*>(memory_.data()), memory_ ? counts_[0] : 0) {}

  std::string name() const override { return name_; }
  /// Returns the algorithm of the run with the most elements.
  std::string algorithm() const override {
    const auto largest = std::ranges::max_element(counts_) - counts_.begin();
    return runs_[static_cast<std::size_t>(largest)]->algorithm();
  }
  Calls calls() const override { return calls_; }
  void ready(std::size_t index) override {
    if (calls_ == Calls::kEach) runs_[index]->run();
  }
  void finish() override {
    if (calls_ == Calls::kEach) return;
    if (calls_ == Calls::kPacked) runs_[0]->write(separate_.data());
    runs_[0]->run();
    if (calls_ == Calls::kPacked) runs_[0]->read(separate_.data());
  }

  void fill(float value) override {
    std::ranges::fill(separate_, value);
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      const std::vector<float> values(counts_[i], value);
      runs_[i]->write(values.data());
    }
  }
  std::uint64_t count_other_than(float value) override {
    if (calls_ == Calls::kPacked) return count_others(separate_, value);
    std::uint64_t others = 0;
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      std::vector<float> values(counts_[i]);
      runs_[i]->read(values.data());
      others += count_others(values, value);
    }
    return others;
  }

 private:
  std::string name_;
  Calls calls_;
  std::vector<std::unique_ptr<CollectiveRun>> runs_;
  std::vector<std::size_t> counts_;
  HostMemory memory_;
  std::span<float> separate_;
};

/// Returns the index of the run that is fastest on the slowest rank, among several all-reduces of
/// `count` elements. Collective.
std::size_t fastest_of(Runtime& runtime, const std::vector<std::unique_ptr<CollectiveRun>>& runs,
                       std::size_t count) {
  const std::vector<float> ones(count, 1.0f);
  std::vector<double> medians_us;
  for (const auto& run : runs) {
    run->write(ones.data());
    run->run();
    std::vector<double> times_us;
    for (int i = 0; i < 5; ++i) times_us.push_back(time_us([&] { run->run(); }));
    max_over_ranks(runtime, times_us);
    medians_us.push_back(summarise(std::move(times_us)).median);
  }
  return static_cast<std::size_t>(std::ranges::min_element(medians_us) - medians_us.begin());
}

using Clock = std::chrono::steady_clock;

constexpr std::size_t kGradientsPerLayer = 12;

/// A fixed amount of computation in registers and the first-level cache, in place of a backward
/// pass. It takes longer if communication uses the core; a wait for the clock would not show that.
class ComputeWork {
 public:
  /// Measures the time of one unit while all ranks compute. Collective.
  explicit ComputeWork(Runtime& runtime) {
    values_.fill(1.0f);
    const volatile std::size_t units = kUnitsAtOnce;  // a constant would get another loop
    // Takes the fastest of five: the core's frequency rises first, and other processes may disturb.
    for (int i = 0; i < 5; ++i) {
      runtime.barrier().wait();
      double us = bench::time_us([&] { run(units); }) / static_cast<double>(kUnitsAtOnce);
      max_over_ranks(runtime, {&us, 1});
      unit_us_ = std::min(unit_us_, us);
    }
  }

  /// Returns the units that take `us` microseconds on the slowest rank; equal on all ranks.
  std::size_t units_of(double us) const { return static_cast<std::size_t>(us / unit_us_); }

  /// Must not be inlined: copies of this loop differ in speed by up to a factor of two.
  [[gnu::noinline]] void run(std::size_t units) {
    for (std::size_t unit = 0; unit < units; ++unit) {
      for (float& value : values_) value = value * 0.999f + 0.001f;
      // The compiler must assume that the result is read; otherwise it would remove the loop.
      asm volatile("" : : "g"(values_.data()) : "memory");
    }
  }

 private:
  static constexpr std::size_t kUnitsAtOnce = 50'000;
  std::array<float, 1024> values_{};
  double unit_us_ = std::numeric_limits<double>::infinity();
};

/// The computation of the backward pass and of the update, divided among the gradients.
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

  /// Calls `ready` with each gradient when it is computed, from last to first.
  template <typename Ready>
  void run_backward(Ready&& ready) {
    for (std::size_t i = units_.size(); i-- > 0;) {
      work_.run(units_[i]);
      ready(i);
    }
  }
  /// Calls `await` with each gradient before it is updated, from first to last.
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

/// Returns the time of `work` on this rank in microseconds; all ranks begin together.
template <typename Work>
double time_together_us(Runtime& runtime, const Work& work) {
  runtime.barrier().wait();
  return time_us(work);
}

double median_us(Runtime& runtime, std::vector<double>& times) {
  max_over_ranks(runtime, times);
  return summarise(times).median;
}

/// Runs backward pass, communication and update. Returns for how many microseconds the update waits
/// for the first layer's sums.
double iterate(OverlapSystem& system, Pass& pass) {
  pass.run_backward([&](std::size_t i) { system.ready(i); });
  Clock::duration waited{};
  bool is_finished = false;
  pass.run_update([&](std::size_t i) {
    const auto from = Clock::now();
    if (!is_finished && !system.await(i)) {
      system.finish();
      is_finished = true;
    }
    if (i < kGradientsPerLayer) waited += Clock::now() - from;
  });
  if (!is_finished) system.finish();
  return std::chrono::duration<double, std::micro>(waited).count();
}

void communicate(OverlapSystem& system, std::size_t gradients) {
  for (std::size_t i = gradients; i-- > 0;) system.ready(i);
  system.finish();
}

/// Checks one iteration in which each rank contributes its number plus one.
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

std::unique_ptr<OverlapSystem> make_kolo_overlap(Runtime& runtime,
                                                 const std::vector<std::size_t>& counts,
                                                 Home home) {
  return std::make_unique<KoloOverlap>(runtime, counts, home);
}

std::unique_ptr<OverlapSystem> make_blocking_overlap(Runtime& runtime, CollectiveSystem& peer,
                                                     const std::vector<std::size_t>& counts,
                                                     Calls calls) {
  check(calls != Calls::kBuckets, "blocking calls know no buckets");
  const std::vector<std::size_t> each =
      calls == Calls::kEach ? counts : std::vector<std::size_t>{total(counts)};
  std::map<std::size_t, std::size_t> fastest;  // number of elements -> index of the fastest run
  std::vector<std::unique_ptr<CollectiveRun>> chosen;
  for (const std::size_t count : each) {
    auto runs = peer.prepare({.bytes = count * sizeof(float), .home = Home::kUser});
    if (!fastest.contains(count)) fastest[count] = fastest_of(runtime, runs, count);
    chosen.push_back(std::move(runs[fastest[count]]));
  }
  return std::make_unique<BlockingOverlap>(peer.name(), calls, std::move(chosen), each);
}

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
      system.fill(0);  // sums in place would grow beyond ordinary numbers
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
    row.iterations_us = std::move(times[s].iteration);
    row.exposed_us = row.iteration_us - row.compute_us;
    row.hidden_percent = 100 * (1 - row.exposed_us / row.communication_us);
    row.wrong = count_wrong(runtime, *systems[s], pass);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace kolo::bench
