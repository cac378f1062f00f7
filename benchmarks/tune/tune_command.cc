#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <deque>
#include <memory>
#include <numeric>

#include <fmt/format.h>

#include "benchmarks/collective/algorithm_choice.h"
#include "benchmarks/collective/collective_bench.h"
#include "benchmarks/common/commands.h"
#include "benchmarks/common/samples.h"
#include "benchmarks/common/table.h"
#include "benchmarks/overlap/overlap_bench.h"
#include "benchmarks/peers/peers.h"
#include "comm/algorithms/chunking.h"
#include "comm/rendezvous/launch.h"
#include "runtime/calibration/calibration_file.h"
#include "runtime/engine/connect.h"
#include "runtime/options/option_table.h"
#include "runtime/tools/command_line.h"
#include "topology/link_fit.h"

namespace kolo::bench {
namespace {

/// Options that tuning decides, or that exclude it.
constexpr std::array<std::string_view, 6> kFixed = {"algorithm",  "chunk_bytes", "fusion_bytes",
                                                    "link_costs", "calibrate",   "reproducible"};
bool is_fixed(std::string_view name) { return std::ranges::find(kFixed, name) != kFixed.end(); }

/// Algorithms that are predicted to take this many times as long as the best are not tried.
constexpr double kMostPredicted = 3;

struct TuneOptions {
  Options runtime = {};
  std::vector<std::string> sizes = {"1K", "4K", "16K", "64K", "256K", "1M", "4M", "16M"};
  double seconds = 0.1;
  bool dry_run = false;
  std::string json = {};
};

/// Measures the links as a job does at its start, until the machine is quiet.
Calibration measure_links(Options options, int attempts) {
  options.calibration_file.clear();
  const auto rendezvous = rendezvous_from_environment(options.connect_timeout);
  Calibration found;
  found.is_doubtful = true;
  for (int attempt = 0; found.is_doubtful && attempt < attempts; ++attempt) {
    const Connection connection = connect(*rendezvous, options);
    found = connection.calibration;
    rendezvous->all_gather("");
    connection.transport->shutdown(/*orderly=*/true);
  }
  return found;
}

/// The options of a job with these links and without tuned choices.
Options untuned(Options options, const Calibration& links) {
  options.calibrate = "off";
  options.link_costs = to_string(links.costs);
  return options;
}

class Tuner {
 public:
  explicit Tuner(const TuneOptions& options)
      : options_(options),
        links_(measure_links(options.runtime, kMostAttempts)),
        plain_(untuned(options.runtime, links_)),
        runtime_(Runtime::from_environment(plain_)),
        prices_(runtime_),
        table_(runtime_.rank() == 0,
               {"kolo-bench tune, slowest rank, us: " + links_.shape,
                "gain: the time of auto relative to the best; low: its lower quartile over rounds"},
               {{"collective", -14},
                {"memory", -6},
                {"size", 9},
                {"auto_us", 11, 1},
                {"best_us", 11, 1},
                {"gain", 6, 3},
                {"low", 6, 3},
                {"outcome", -10},
                {"best", 0}}) {
    if (runtime_.world_size() == 1) refuse("one rank alone has nothing to tune; start several");
    expect_output(runtime_, options.json);
    if (!options.dry_run) on_first_rank(runtime_, [&] { file().check_writable(); });
    busy_ = links_.is_doubtful;
  }

  /// Tunes algorithm and chunks.
  void tune(const CollectiveCase& what) {
    const std::vector<std::string> names = prices_.algorithms(what);  // cheapest first
    const double most_us = kMostPredicted * prices_.predict_us(names.front(), what);
    std::vector<Options> candidates;
    for (const std::string& name : names) {
      if (prices_.predict_us(name, what) > most_us) continue;
      candidates.push_back(plain_);
      candidates.back().algorithm = name;
      for (const std::size_t chunk : {kSmallestChunk, 4 * kSmallestChunk}) {
        if (chunk >= what.bytes) break;
        candidates.push_back(candidates.back());
        candidates.back().chunk_bytes = chunk;
      }
    }
    const CollectiveOptions bench{.sizes = {what.bytes},
                                  .homes = {what.home},
                                  .places = {what.in_place},
                                  .what = what,
                                  .seconds = options_.seconds,
                                  .warmup = 3,
                                  .rounds = kLeastIterations};
    choose({.collective = std::string(to_string(what.verb)),
            .in_place = what.home == Home::kArena,
            .bytes = what.spec(runtime_.world_size()).count() * size_of(what.dtype)},
           what.bytes, candidates, make_kolo_system, [&](const auto& systems) {
             Trial trial;
             for (const auto& row : measure_collective(runtime_, systems, bench, [](auto&) {})) {
               right_ &= row.wrong == 0u;
               trial.rounds.push_back(row.rounds_us);
               trial.calls.push_back(row.slowest_us);
             }
             return trial;
           });
  }

  /// Tunes the buckets of about `bytes` bytes of gradients, beside as much computation.
  void tune_gradients(std::size_t bytes) {
    constexpr std::size_t kLayers = 6;
    const double width = std::sqrt(static_cast<double>(bytes) / (48 * kLayers));
    const CollectiveCase whole{.bytes = bytes};
    const OverlapOptions overlap{
        .counts = transformer_gradients(kLayers, static_cast<std::size_t>(std::ceil(width))),
        .compute_ms = prices_.predict_us(prices_.algorithms(whole).front(), whole) / 1e3};
    std::vector<Options> candidates;
    for (const std::size_t size : {bytes / 64, bytes / 16, bytes / 4, bytes * 2}) {
      candidates.push_back(plain_);
      candidates.back().fusion_bytes = size;
    }
    choose(
        {.in_place = true, .bytes = bytes}, bytes, candidates,
        [&](Runtime& runtime) { return make_kolo_overlap(runtime, overlap.counts, Home::kArena); },
        [&](const auto& systems) {
          Trial trial;
          for (const OverlapRow& row : measure_overlap(runtime_, systems, overlap)) {
            right_ &= row.wrong == 0;
            trial.rounds.push_back(row.iterations_us);
            trial.calls.push_back(summarise(row.iterations_us));
          }
          return trial;
        });
  }

  /// Writes what is kept, unless the machine was busy. Returns whether all results were right.
  bool finish() {
    on_first_rank(runtime_, [&] {
      if (busy_ || !right_ || options_.dry_run) return table_.note("nothing is written");
      file().remember_tuning(kept_, std::chrono::system_clock::now());
      table_.note(fmt::format("{} choices kept in {}", kept_.size(), file().path()));
    });
    table_.write(options_.json);
    const bool is_silent = runtime_.rank() != 0;
    runtime_.close();
    if (!busy_) return right_;
    throw KoloError({.code = ErrorCode::kTimeout,
                     .what =
                         "the machine is busy: times of equal calls, or rates of links, differ; "
                         "nothing is kept, tune again when it is idle",
                     .logged = is_silent});
  }

 private:
  CalibrationFile file() const {
    return {calibration_path(options_.runtime.calibration_file), links_.shape};
  }

  /// Finds the best candidate for a size of `--sizes`. `make` makes the system of a runtime;
  /// `measure` takes systems.
  template <typename Make, typename Measure>
  void choose(TunedChoice choice, std::size_t size, const std::vector<Options>& candidates,
              const Make& make, const Measure& measure) {
    if (busy_ || candidates.size() == 1) return;
    const auto measure_in_turns = [&](const std::vector<std::size_t>& tried) {
      std::deque<Runtime> runtimes;
      std::vector<decltype(make(runtime_))> systems;
      // The untuned runtime is as young as the others: memory that was used before differs in
      // speed.
      systems.push_back(make(runtimes.emplace_back(Runtime::from_environment(plain_))));
      for (const std::size_t i : tried) {
        systems.push_back(make(runtimes.emplace_back(Runtime::from_environment(candidates[i]))));
      }
      Trial trial = measure(systems);
      systems.clear();
      for (Runtime& each : runtimes) each.close();
      return trial;
    };
    const Verdict verdict = find_better(candidates.size(), measure_in_turns, [&] {
      const Calibration now = measure_links(options_.runtime, 1);
      return !now.is_doubtful && confirms(now.costs, links_.costs);
    });
    const Options& best = candidates[verdict.best];
    if (!choice.collective.empty()) choice.algorithm = best.algorithm;
    if (best.chunk_bytes != kAutoBytes) choice.chunk_bytes = best.chunk_bytes;
    if (best.fusion_bytes != kAutoBytes) choice.fusion_bytes = best.fusion_bytes;
    constexpr std::array kOutcomes = {"kept", "not faster", "busy"};
    table_.add({{"collective", choice.collective.empty() ? "gradients" : choice.collective},
                {"memory", choice.in_place ? "arena" : "user"},
                {"size", size},
                {"auto_us", verdict.champion_us},
                {"best_us", verdict.best_us},
                {"gain", verdict.gain.median},
                {"low", verdict.gain.low},
                {"attempts", verdict.attempts},
                {"outcome", kOutcomes[static_cast<std::size_t>(verdict.outcome)]},
                {"best", nlohmann::json::parse(to_text({choice})).front()}});
    busy_ = verdict.outcome == Outcome::kBusy;
    if (verdict.outcome == Outcome::kKept) kept_.push_back(std::move(choice));
  }

  const TuneOptions& options_;
  const Calibration links_;
  const Options plain_;
  Runtime runtime_;
  const AlgorithmChoice prices_;
  Table table_;
  Tuning kept_;
  bool right_ = true, busy_ = false;
};

bool run(TuneOptions& options) {
  options.runtime = options_from_environment(std::move(options.runtime));
  for (const OptionEntry& entry : option_table()) {
    if (!is_fixed(entry.name) || entry.get(options.runtime) == entry.get(Options{})) continue;
    refuse(fmt::format("tune tries what auto leaves open: unset {}", entry.variable()));
  }
  const std::vector<std::size_t> sizes = parse_sizes("--sizes", options.sizes);
  Peers peers({});
  peers.keep_launcher();
  Tuner tuner(options);
  for (const std::size_t size : sizes) {
    for (const Verb verb : kAllVerbs) {
      const bool in_place = traits_of(verb).in_place;
      if (has_other_place(verb)) {
        tuner.tune({.verb = verb, .bytes = size, .home = Home::kUser, .in_place = in_place});
      }
    }
    tuner.tune({.bytes = size});
    if (size > kSmallestChunk) tuner.tune_gradients(size);
  }
  return tuner.finish();
}

}  // namespace

Command add_tune(CLI::App& app) {
  CLI::App& command = *app.add_subcommand(
      "tune", "Keeps choices faster than those of auto for later jobs on these hosts");
  auto options = std::make_shared<TuneOptions>();
  command
      .add_option(
          "--sizes", options->sizes,
          "Bytes of float32, of the parts of all ranks or of all gradients, comma-separated; "
          "what is kept serves from half of a size to twice")
      ->delimiter(',');
  command
      .add_option("--seconds", options->seconds, "Seconds for each candidate at each size, about")
      ->check(CLI::PositiveNumber);
  command.add_flag("--dry-run", options->dry_run, "Write nothing to the calibration file");
  command.add_option("--json", options->json, "Write the rows to this file");
  add_runtime_options(command, options->runtime, [](std::string_view name) {
    return name != "compression" && !is_fixed(name);
  });
  return {&command, [options] { return run(*options); }};
}

}  // namespace kolo::bench
