#include "benchmarks/collective/choice_command.h"

#include <algorithm>
#include <cstdio>
#include <deque>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "benchmarks/collective/goal_choice.h"
#include "benchmarks/common/json_file.h"
#include "benchmarks/peers/peer_factory.h"
#include "comm/base/error.h"
#include "runtime/api/version.h"
#include "runtime/tools/command_line.h"

namespace kolo::bench {
namespace {

/// "hier:ring" for "hierarchical:direct,ring", to keep the table narrow.
std::string short_name(const std::string& algorithm) {
  const std::size_t comma = algorithm.find(',');
  return comma == std::string::npos ? algorithm : "hier:" + algorithm.substr(comma + 1);
}

std::string noise_text(const std::optional<PairedRatio>& noise) {
  return noise ? fmt::format("{:.3f}", noise->median) : "-";
}

/// Medians, with predictions after a slash.
void print(const ChoiceRow& row) {
  fmt::print("  {:>10} {:<16} {:>10.2f} {:<16} {:>6.3f} {:>6} {:>11} {:>5.0f}% {:>6} ",
             row.what.bytes, short_name(row.chosen.algorithm), row.chosen.median_us,
             short_name(row.forced[row.best].algorithm), row.ratio.median, noise_text(row.noise),
             fmt::format("{:.2f}-{:.2f}", row.ratio.low, row.ratio.high),
             100 * row.ratio.slower_share, row.rounds);
  for (const ChoiceCandidate& each : row.forced) {
    fmt::print(" {}={:.2f}/{:.2f}", short_name(each.algorithm), each.median_us, each.predicted_us);
  }
  fmt::print("\n");
  std::fflush(stdout);
}

nlohmann::json to_json(const PairedRatio& ratio) {
  return {{"median", ratio.median},
          {"low", ratio.low},
          {"high", ratio.high},
          {"slower_share", ratio.slower_share}};
}

nlohmann::json to_json(const Runtime& runtime, const ChoiceRow& row) {
  nlohmann::json forced = nlohmann::json::object();
  for (const ChoiceCandidate& each : row.forced) {
    forced[each.algorithm] = {{"median_us", each.median_us}, {"predicted_us", each.predicted_us}};
  }
  return {{"collective", to_string(row.what.verb)},
          {"size", row.what.bytes},
          {"memory", to_string(row.what.home)},
          {"ranks", runtime.world_size()},
          {"nodes", runtime.num_nodes()},
          {"rounds", row.rounds},
          {"chosen", row.chosen.algorithm},
          {"median_us", row.chosen.median_us},
          {"best_other", row.forced[row.best].algorithm},
          {"ratio", to_json(row.ratio)},
          {"noise", row.noise ? to_json(*row.noise) : nlohmann::json(nullptr)},
          {"forced", std::move(forced)}};
}

Verb parse_verb(std::string_view text) {
  return *std::ranges::find(kAllVerbs, text, [](Verb verb) { return to_string(verb); });
}

/// Calls that only one algorithm serves have no choice.
std::vector<std::string> verbs_with_choice() {
  std::vector<std::string> names;
  for (const Verb verb : kAllVerbs) {
    if (verb != Verb::kSendRecv && verb != Verb::kSparseRows) names.emplace_back(to_string(verb));
  }
  return names;
}

}  // namespace

ChoiceCommand::ChoiceCommand(CLI::App& app)
    : command_(
          *app.add_subcommand("choice", "Time of auto beside the best algorithm forced by name")) {
  command_
      .add_option("--collective", collective_,
                  "The collective whose algorithms are forced; others than all-reduce have several "
                  "between nodes only")
      ->check(CLI::IsMember(verbs_with_choice()))
      ->capture_default_str();
  command_
      .add_option("--sizes", sizes_,
                  "Bytes of float32, of the parts of all ranks, comma-separated, with suffixes K, "
                  "M and G")
      ->delimiter(',')
      ->capture_default_str();
  command_
      .add_option("--algorithms", algorithms_,
                  "Algorithms to force, separated by semicolons; default: all")
      ->delimiter(';');
  command_.add_option("--memory", home_, "Where tensors live: arena or user")
      ->check(one_of({"arena", "user"}))
      ->capture_default_str();
  command_
      .add_option("--seconds", options_.seconds,
                  "Seconds for the timed iterations of each algorithm at each size")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command_
      .add_option("--rounds", options_.rounds,
                  "Largest number of rounds; each measures every algorithm")
      ->check(CLI::Range(4, 10'000))
      ->capture_default_str();
  command_.add_flag("--together", options_.together,
                    "A barrier before each call, between nodes after a rest, as there always is "
                    "one before the calls of a root");
  command_.add_option("--json", json_, "Write the rows to this file");
  add_runtime_options(command_, runtime_, [](std::string_view name) {
    return name != "algorithm" && name != "compression";
  });
}

bool ChoiceCommand::run() {
  runtime_ = options_from_environment(std::move(runtime_));
  options_.what.verb = parse_verb(collective_);
  const bool is_goal = options_.what.verb != Verb::kAllReduce;
  require_runtime_read(
      command_, [&](std::string_view name) { return !is_goal || !is_of_gradients(name); },
      "--collective all-reduce");
  if (runtime_.algorithm != Options{}.algorithm) {
    throw KoloError({.code = ErrorCode::kConfig,
                     .what = "choice measures auto, so KOLO_ALGORITHM must not be set"});
  }
  options_.sizes = parse_sizes("--sizes", sizes_);
  options_.what.home = home_ == "arena" ? Home::kArena : Home::kUser;
  options_.what.in_place = traits_of(options_.what.verb).in_place;
  if (!is_goal) options_.what.wire = runtime_.wire_dtype;

  Peers peers({});
  peers.keep_launcher();
  // A runtime has one algorithm, so there are several runtimes; only the first one's costs matter.
  std::deque<Runtime> all;
  all.push_back(Runtime::from_environment(runtime_));
  Runtime& runtime = all.front();
  const bool speaks = runtime.rank() == 0;
  expect_output(runtime, json_);
  if (is_goal && runtime.num_nodes() == 1) {
    throw KoloError({.code = ErrorCode::kConfig,
                     .what = fmt::format("all ranks are on one node, where {} has one algorithm; "
                                         "KOLO_NODE_ID plays several nodes on one machine",
                                         collective_)});
  }
  if (algorithms_.empty()) algorithms_ = GoalChoice(runtime).algorithms(options_.what);
  std::vector<Runtime*> runtimes{&runtime};
  for (const std::string& algorithm : algorithms_) {
    Options forced = runtime_;
    forced.algorithm = algorithm;
    forced.link_costs = runtime.link_costs();
    forced.calibrate = "off";
    runtimes.push_back(&all.emplace_back(Runtime::from_environment(forced)));
  }

  if (speaks) {
    fmt::print("# kolo-bench choice, kolo {}: {}, {} ranks on {} nodes, memory {}, medians in us\n",
               kVersion, collective_, runtime.world_size(), runtime.num_nodes(), home_);
    fmt::print(
        "# ratio: auto to the best other, paired by rounds, with quartiles and the share of ");
    fmt::print("rounds in which auto took 1.1 times as long; noise: auto to itself by name\n");
    fmt::print("# {}\n# {:>10} {:<16} {:>10} {:<16} {:>6} {:>6} {:>11} {:>6} {:>6}  {}\n",
               runtime.link_costs(), "size", "auto", "time", "best other", "ratio", "noise",
               "quartiles", "slower", "rounds", "measured/predicted");
  }
  nlohmann::json rows = nlohmann::json::array();
  double worst = 0;
  const bool right = measure_choice(runtimes, algorithms_, options_, [&](const ChoiceRow& row) {
    worst = std::max(worst, row.ratio.median);
    rows.push_back(to_json(runtime, row));
    if (speaks) print(row);
  });
  if (speaks) fmt::print("# auto takes at most {:.3f} of the best other\n", worst);
  for (Runtime& each : all) each.close();
  if (speaks) write_json(json_, rows);
  return right;
}

}  // namespace kolo::bench
