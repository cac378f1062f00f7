#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "benchmarks/collective/algorithm_choice.h"
#include "benchmarks/collective/collective_bench.h"
#include "benchmarks/common/commands.h"
#include "benchmarks/common/samples.h"
#include "benchmarks/common/table.h"
#include "benchmarks/peers/peers.h"
#include "runtime/options/version.h"
#include "runtime/tools/command_line.h"

namespace kolo::bench {
namespace {

struct ChoiceOptions {
  Options runtime = {};
  std::vector<std::string> sizes = {"4",    "1K", "4K", "16K", "64K",
                                    "256K", "1M", "4M", "16M", "64M"};
  std::vector<std::string> algorithms = {};
  std::string collective{to_string(Verb::kAllReduce)}, home = "arena", json = {};
  CollectiveOptions bench = {
      .sizes = {}, .seconds = 0.3, .warmup = 3, .rounds = 60, .fresh = false};
};

/// The result of "auto" for one case, and the results of all algorithms.
struct ChoiceRow {
  CollectiveRow chosen;               ///< Result of "auto".
  std::vector<CollectiveRow> forced;  ///< Results of all algorithms that support the case.
  std::size_t best = 0;               ///< Index in `forced` of the best algorithm that is not
                                      ///< chosen.
  PairedRatio ratio = {};             ///< Time of "auto" relative to the best algorithm.
  /// Time of "auto" relative to its own choice, forced by name. Both run the same schedule, so a
  /// difference from 1 is noise.
  std::optional<PairedRatio> noise = std::nullopt;
};

/// Judges the rows of one case. The first row is of "auto", the others are of `names` in order.
ChoiceRow judge(std::vector<CollectiveRow> rows, const std::vector<std::string>& names) {
  // With fewer iterations than rounds, only the first rounds are measured.
  std::size_t rounds = rows.front().rounds_us.size();
  for (const CollectiveRow& row : rows) rounds = std::min(rounds, row.rounds_us.size());
  for (CollectiveRow& row : rows) row.rounds_us.resize(rounds);
  ChoiceRow result{.chosen = std::move(rows.front()), .forced = {}};
  std::vector<RoundTimes> rivals;
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const bool is_chosen = names[i - 1] == result.chosen.algorithm;
    if (rows[i].what.verb != Verb::kAllReduce && rows[i].algorithm != names[i - 1]) continue;
    // The chosen algorithm gets no times here, so that it is not compared with itself.
    rivals.push_back(is_chosen ? RoundTimes{} : rows[i].rounds_us);
    if (is_chosen) result.noise = paired_ratio(result.chosen.rounds_us, rows[i].rounds_us);
    result.forced.push_back(std::move(rows[i]));
  }
  const Rivalry rivalry = best_rival(result.chosen.rounds_us, rivals);
  result.best = rivalry.best;
  result.ratio = rivalry.ratio;
  return result;
}

double median_us(const CollectiveRow& row) { return summarise(row.rounds_us).median; }

nlohmann::json to_json(const PairedRatio& ratio) {
  return {{"median", ratio.median},
          {"low", ratio.low},
          {"high", ratio.high},
          {"slower_share", ratio.slower_share}};
}

nlohmann::json to_json(const Runtime& runtime, const ChoiceRow& row,
                       const AlgorithmChoice& prices) {
  nlohmann::json forced = nlohmann::json::object();
  for (const CollectiveRow& each : row.forced) {
    forced[each.algorithm] = {{"median_us", median_us(each)},
                              {"predicted_us", prices.predict_us(each.algorithm, each.what)}};
  }
  return {{"collective", to_string(row.chosen.what.verb)},
          {"size", row.chosen.what.bytes},
          {"memory", to_string(row.chosen.what.home)},
          {"ranks", runtime.world_size()},
          {"nodes", runtime.num_nodes()},
          {"rounds", row.chosen.rounds_us.size()},
          {"chosen", row.chosen.algorithm},
          {"median_us", median_us(row.chosen)},
          {"best_other", row.forced[row.best].algorithm},
          {"ratio", to_json(row.ratio)},
          {"noise", row.noise ? to_json(*row.noise) : nlohmann::json(nullptr)},
          {"forced", std::move(forced)}};
}

Table make_table(const Runtime& runtime, const ChoiceOptions& options) {
  return {
      runtime.rank() == 0,
      {fmt::format("kolo-bench choice, kolo {}: {}, {} ranks on {} nodes, memory {}, in us",
                   kVersion, options.collective, runtime.world_size(), runtime.num_nodes(),
                   options.home),
       "ratio: auto to the best other, paired by rounds, with quartiles and the share of rounds "
       "in which auto took 1.1 times as long; noise: auto to itself by name",
       runtime.link_costs()},
      {{"size"},
       {"chosen", -26},
       {"median_us", 10, 2},
       {"best_other", -26},
       {"/ratio/median", 6, 3, "ratio"},
       {"/noise/median", 6, 3, "noise"},
       {"/ratio/low", 6, 3, "low"},
       {"/ratio/high", 6, 3, "high"},
       {"/ratio/slower_share", 6, 2, "slower"},
       {"rounds", 6},
       {"forced", 0}}};
}

/// Errors: UsageError for an option that the collective would ignore.
void resolve(ChoiceOptions& options, const CLI::App& command) {
  CollectiveCase& what = options.bench.what;
  options.runtime = options_from_environment(std::move(options.runtime));
  what.verb =
      *std::ranges::find(kAllVerbs, options.collective, [](Verb verb) { return to_string(verb); });
  const bool is_all_reduce = what.verb == Verb::kAllReduce;
  require_runtime_read(
      command, [&](std::string_view name) { return is_all_reduce || !is_of_gradients(name); },
      "--collective all-reduce");
  if (options.runtime.algorithm != Options{}.algorithm) {
    refuse("choice measures auto, so KOLO_ALGORITHM must not be set");
  }
  what.in_place = traits_of(what.verb).in_place;
  if (is_all_reduce) what.wire = options.runtime.wire_dtype;
  options.bench.homes = {options.home == "arena" ? Home::kArena : Home::kUser};
  options.bench.places = {what.in_place};
  options.bench.what.home = options.bench.homes.front();
}

bool run(ChoiceOptions& options, const CLI::App& command) {
  resolve(options, command);
  const CollectiveCase& what = options.bench.what;
  Peers peers({});
  peers.keep_launcher();
  // Each runtime is fixed to one algorithm. Only the first runtime's link costs are used.
  std::deque<Runtime> runtimes;
  Runtime& runtime = runtimes.emplace_back(Runtime::from_environment(options.runtime));
  expect_output(runtime, options.json);
  if (what.verb != Verb::kAllReduce && runtime.num_nodes() == 1) {
    refuse(
        fmt::format("all ranks are on one node, where {} has one algorithm; KOLO_NODE_ID "
                    "simulates several nodes on one machine",
                    options.collective));
  }
  const AlgorithmChoice prices(runtime);
  std::vector<std::string> names = options.algorithms;
  if (names.empty()) names = prices.algorithms(what);
  std::vector<std::unique_ptr<CollectiveSystem>> systems;
  systems.push_back(make_kolo_system(runtime));
  for (const std::string& name : names) {
    Options forced = options.runtime;
    forced.algorithm = name;
    forced.link_costs = runtime.link_costs();
    forced.calibrate = "off";
    systems.push_back(make_kolo_system(runtimes.emplace_back(Runtime::from_environment(forced))));
  }
  // Without a barrier, a root that receives nothing would run several calls ahead of other ranks.
  const int ranks = runtime.world_size();
  options.bench.together = options.bench.together || !what.spec(ranks).is_mutual();

  Table table = make_table(runtime, options);
  double worst = 0;
  bool right = true;
  for (const std::size_t size : parse_sizes("--sizes", options.sizes)) {
    options.bench.sizes = {size};
    const ChoiceRow row =
        judge(measure_collective(runtime, systems, options.bench,
                                 [&](const CollectiveRow& each) { right &= each.wrong == 0u; }),
              names);
    worst = std::max(worst, row.ratio.median);
    table.add(to_json(runtime, row, prices));
  }
  table.note(fmt::format("auto takes at most {:.3f} of the best other", worst));
  systems.clear();
  for (Runtime& each : runtimes) each.close();
  table.write(options.json);
  return right;
}

/// Returns the collectives that several algorithms support.
std::vector<std::string> verbs_with_choice() {
  std::vector<std::string> names;
  for (const Verb verb : kAllVerbs) {
    if (verb != Verb::kSendRecv && verb != Verb::kSparseRows) names.emplace_back(to_string(verb));
  }
  return names;
}

}  // namespace

Command add_choice(CLI::App& app) {
  CLI::App& command =
      *app.add_subcommand("choice", "Time of auto beside the best algorithm forced by name");
  auto options = std::make_shared<ChoiceOptions>();
  command
      .add_option("--collective", options->collective,
                  "The collective whose algorithms are forced; others than all-reduce have several "
                  "between nodes only")
      ->check(CLI::IsMember(verbs_with_choice()));
  command
      .add_option("--sizes", options->sizes,
                  "Bytes of float32, of the parts of all ranks, comma-separated, with suffixes K, "
                  "M and G")
      ->delimiter(',');
  command
      .add_option("--algorithms", options->algorithms,
                  "Algorithms to force, separated by semicolons; default: all")
      ->delimiter(';');
  command.add_option("--memory", options->home, "Where tensors live: arena or user")
      ->check(one_of({"arena", "user"}));
  command
      .add_option("--seconds", options->bench.seconds,
                  "Seconds for the timed iterations of each algorithm at each size")
      ->check(CLI::PositiveNumber);
  command
      .add_option("--rounds", options->bench.rounds,
                  "Largest number of rounds; each measures every algorithm")
      ->check(CLI::Range(4, 10'000));
  command.add_flag("--together", options->bench.together,
                   "A barrier before each call, between nodes after a rest, as there always is one "
                   "before the calls of a root");
  command.add_option("--json", options->json, "Write the rows to this file");
  add_runtime_options(command, options->runtime, [](std::string_view name) {
    return name != "algorithm" && name != "compression";
  });
  return {&command, [options, &command] { return run(*options, command); }};
}

}  // namespace kolo::bench
