#include "benchmarks/collective/collective_bench.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>
#include <utility>

#include "benchmarks/collective/checked_results.h"
#include "benchmarks/common/exchange.h"
#include "comm/base/clock.h"

namespace kolo::bench {
namespace {

using Clock = std::chrono::steady_clock;

/// Algorithms that are this many times slower than the best of their system are dropped.
constexpr double kHopeless = 1.5;

/// Returns the number of iterations: many for small sizes, and few for large ones.
int iterations_by_size(std::size_t bytes) {
  constexpr std::size_t kBytesPerRow = std::size_t{1} << 29;
  return static_cast<int>(
      std::clamp<std::size_t>(kBytesPerRow / std::max<std::size_t>(bytes, 1), 20, 1000));
}

/// One algorithm of one system on one case, and its measurements.
struct Contender {
  CollectiveSystem* system = nullptr;
  CollectiveCase what = {};
  std::unique_ptr<CollectiveRun> run = nullptr;
  int iterations = 0;
  /// Times on this rank, in microseconds. At the end they become the maximum over all ranks.
  std::vector<double> times_us = {};
  std::vector<std::size_t> round_ends = {};  ///< Indices in `times_us`.
  double mean_us = 0;
  std::uint64_t wire_bytes = 0;
  std::uint64_t wrong = 0;
  bool hopeless = false;

  bool rivals(const Contender& other) const {
    return system == other.system && what.home == other.what.home &&
           what.in_place == other.what.in_place;
  }
};

/// Measures all contenders for one size.
class SizeBench {
 public:
  SizeBench(Runtime& runtime, const CollectiveOptions& options, const CollectiveCase& what)
      : runtime_(runtime), options_(options), sums_(runtime, what) {}

  void add(CollectiveSystem& system, const CollectiveCase& what) {
    for (auto& run : system.prepare(what)) {
      contenders_.push_back({.system = &system, .what = what, .run = std::move(run)});
    }
  }

  std::vector<CollectiveRow> measure() {
    for (Contender& contender : contenders_) {
      check_sums(contender);
      choose_iterations(contender);
    }
    std::vector<std::size_t> order(contenders_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::mt19937_64 random(order.size());  // equal on all ranks
    for (int round = 0; round < options_.rounds; ++round) {
      std::shuffle(order.begin(), order.end(), random);
      for (const std::size_t i : order) {
        if (!contenders_[i].hopeless) time_round(contenders_[i], round);
      }
      if (round == 0) drop_the_hopeless();
    }
    for (Contender& contender : contenders_) {
      check_sums(contender);
      contender.mean_us = summarise(contender.times_us).mean;
      max_over_ranks(runtime_, {&contender.mean_us, 1});
      max_over_ranks(runtime_, contender.times_us);
    }
    return best_rows();
  }

 private:
  void check_sums(Contender& contender) {
    contender.run->forget();
    contender.run->write(sums_.contribution());
    contender.run->run();
    contender.run->settle();
    if (!contender.system->sums()) return;
    contender.wrong += sums_.count_wrong(runtime_, *contender.run);
    if (!contender.what.in_place) {
      contender.wrong += sums_.count_changed(runtime_, *contender.run);
    }
  }

  void choose_iterations(Contender& contender) {
    contender.iterations = options_.iterations;
    if (contender.iterations > 0) return;
    contender.run->align();
    double us = std::max(time_us([&] { contender.run->run(); }), 0.1);
    contender.run->settle();
    max_over_ranks(runtime_, {&us, 1});
    contender.iterations = static_cast<int>(std::clamp<double>(
        options_.seconds * 1e6 / us, kLeastIterations, iterations_by_size(contender.what.bytes)));
  }

  void time_round(Contender& contender, int round) {
    // Iterations are divided among the rounds; the first rounds take the remainder.
    const int iterations = contender.iterations / options_.rounds +
                           (round < contender.iterations % options_.rounds ? 1 : 0);
    if (iterations == 0) return;
    // In place, sums grow with every iteration. A new contribution keeps them finite for a round.
    contender.run->write(sums_.contribution());
    const int warmup = std::min(options_.warmup, iterations);
    for (int i = 0; i < warmup; ++i) contender.run->run();
    const std::uint64_t wire_before = contender.system->wire_bytes().value_or(0);
    auto ended = Clock::now();
    for (int i = 0; i < iterations; ++i) {
      if (options_.fresh) contender.run->write(sums_.contribution());
      if (options_.together || options_.fresh) {
        contender.run->settle();
        Runtime* const own = contender.system->runtime();
        begin_together(own != nullptr ? *own : runtime_, ended);
      }
      contender.run->align();
      const auto start = Clock::now();
      contender.run->run();
      ended = Clock::now();
      contender.times_us.push_back(to_us(ended - start));
    }
    contender.round_ends.push_back(contender.times_us.size());
    contender.run->settle();
    contender.wire_bytes += contender.system->wire_bytes().value_or(0) - wire_before;
  }

  void drop_the_hopeless() {
    std::vector<double> medians;
    for (const Contender& contender : contenders_) {
      std::vector<double> times = contender.times_us;
      max_over_ranks(runtime_, times);
      medians.push_back(summarise(std::move(times)).median);
    }
    for (std::size_t i = 0; i < contenders_.size(); ++i) {
      for (std::size_t j = 0; j < contenders_.size(); ++j) {
        contenders_[i].hopeless |=
            contenders_[i].rivals(contenders_[j]) && medians[i] > kHopeless * medians[j];
      }
    }
  }

  /// Makes one row for each case of each system: the row of its best algorithm that was not
  /// dropped. Wrong elements are added up over all its algorithms.
  std::vector<CollectiveRow> best_rows() {
    std::vector<CollectiveRow> rows;
    const Contender* best = nullptr;  // best contender of the last row
    for (const Contender& contender : contenders_) {
      CollectiveRow row = summarised(contender);
      if (best == nullptr || !contender.rivals(*best)) {
        row.candidates.push_back(row.algorithm);
        rows.push_back(std::move(row));
        best = &contender;
        continue;
      }
      CollectiveRow& last = rows.back();
      last.candidates.push_back(row.algorithm);
      last.wrong = row.wrong = sum(row.wrong, last.wrong);
      const auto rank = [](const Contender& each, const CollectiveRow& its) {
        return std::pair(each.hopeless, its.slowest_us.median);
      };
      if (rank(contender, row) < rank(*best, last)) {
        row.candidates = std::move(last.candidates);
        last = std::move(row);
        best = &contender;
      }
    }
    return rows;
  }

  static std::optional<std::uint64_t> sum(std::optional<std::uint64_t> a,
                                          std::optional<std::uint64_t> b) {
    return a && b ? std::optional(*a + *b) : std::nullopt;
  }

  CollectiveRow summarised(const Contender& contender) {
    CollectiveRow row{.system = contender.system->name(),
                      .what = contender.what,
                      .library = contender.system->library(),
                      .algorithm = contender.run->algorithm(),
                      .iterations = static_cast<int>(contender.times_us.size()),
                      .together = options_.together,
                      .fresh = options_.fresh,
                      .mean_us = contender.mean_us,
                      .slowest_us = summarise(contender.times_us)};
    auto begin = contender.times_us.begin();
    for (const std::size_t last : contender.round_ends) {
      const auto end = contender.times_us.begin() + static_cast<std::ptrdiff_t>(last);
      row.rounds_us.push_back(summarise({begin, end}).median);
      begin = end;
    }
    row.algbw = static_cast<double>(row.what.bytes) / row.mean_us / 1e3;
    row.busbw = row.algbw * row.what.bus_factor(runtime_.world_size());
    if (contender.system->sums()) row.wrong = contender.wrong;
    if (contender.system->wire_bytes()) {
      auto wire = static_cast<std::int64_t>(contender.wire_bytes);
      runtime_.all_reduce("bench wire", {&wire, 1, DType::kInt64}, ReduceOp::kMax).wait();
      row.wire_bytes = static_cast<std::uint64_t>(wire) / contender.times_us.size();
    }
    return row;
  }

  Runtime& runtime_;
  const CollectiveOptions& options_;
  CheckedResults sums_;
  std::vector<Contender> contenders_;
};

/// Returns the homes in which `system` is measured, each once.
std::vector<Home> homes_of(const CollectiveSystem& system, const std::vector<Home>& asked) {
  std::vector<Home> homes;
  for (Home home : asked) {
    if (!system.has_arena()) home = without_arena(home);
    if (std::find(homes.begin(), homes.end(), home) == homes.end()) homes.push_back(home);
  }
  return homes;
}

}  // namespace

std::vector<CollectiveRow> measure_collective(
    Runtime& runtime, const std::vector<std::unique_ptr<CollectiveSystem>>& systems,
    const CollectiveOptions& options, const std::function<void(const CollectiveRow&)>& report) {
  std::vector<CollectiveRow> rows;
  for (std::size_t bytes : options.sizes) {
    CollectiveCase what = options.what;
    what.bytes = what.whole_bytes(bytes, runtime.world_size());
    SizeBench bench(runtime, options, what);
    for (const auto& system : systems) {
      if (!system->covers(what.bytes)) continue;
      for (Home home : homes_of(*system, options.homes)) {
        what.home = home;
        for (const bool in_place : options.places) {
          what.in_place = in_place;
          bench.add(*system, what);
        }
      }
    }
    for (CollectiveRow& row : bench.measure()) {
      report(row);
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace kolo::bench
