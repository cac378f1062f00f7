#include "trainer/sweep/sweep.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <tuple>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "comm/base/error.h"
#include "trainer/checkpoint/durable_file.h"
#include "trainer/sweep/child_processes.h"

namespace kolo::trainer {
namespace {

using Json = nlohmann::ordered_json;

std::filesystem::path folder_of(const SweepOptions& options, const Combination& combination) {
  return options.folder / folder_name(combination);
}

/// `last_step` is 0 for a run to its end.
ChildProcess process_of(const SweepOptions& options, const Combination& combination,
                        std::size_t last_step) {
  const std::filesystem::path folder = folder_of(options, combination);
  ChildProcess process{.words = options.command, .log = folder / "log.txt"};
  auto& words = process.words;
  words.insert(words.end(), options.options.begin(), options.options.end());
  for (const auto& [option, value] : combination) {
    words.insert(words.end(), {"--" + option, value});
  }
  words.insert(words.end(), {"--run", folder.string(), "--resume", "auto", "--progress", "lines",
                             "--json", (folder / "summary.json").string()});
  if (last_step > 0) words.insert(words.end(), {"--stop-after", fmt::format("{}", last_step)});
  return process;
}

std::optional<double> number_in(const Json& object, const std::string& name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

/// Takes the last numbers of a run from its metrics.jsonl.
void read_numbers(const std::filesystem::path& folder, SweepResult& result) {
  std::ifstream in(folder / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) {
    const Json json = Json::parse(line, nullptr, false);
    if (!json.is_object()) continue;
    if (const auto loss = number_in(json, "train_loss")) result.train_loss = loss;
    if (!json.contains("eval_loss")) continue;
    result.steps = json.value("step", std::size_t{0});
    result.eval_loss = number_in(json, "eval_loss");
    for (const auto& [name, value] : json.items()) {
      if (!name.starts_with("eval_") || name == "eval_loss") continue;
      result.metric = name.substr(5);
      result.eval_metric = number_in(json, name);
    }
  }
}

bool has_failed(const SweepResult& result) { return result.status != 0 || !result.eval_loss; }

bool is_better(const SweepResult& a, const SweepResult& b) {
  const auto key = [](const SweepResult& r) {
    return std::tuple(has_failed(r), -static_cast<double>(r.steps), r.eval_loss.value_or(0.0));
  };
  return key(a) < key(b);
}

std::string or_dash(const std::optional<double>& value) {
  return value ? fmt::format("{:.4f}", *value) : "-";
}

}  // namespace

std::vector<SweepResult> run_sweep(const SweepOptions& options, std::FILE* out) {
  std::vector<SweepResult> results;
  for (const Combination& combination : all_combinations(options.dimensions)) {
    results.push_back({.combination = combination});
    std::error_code error;
    std::filesystem::create_directories(folder_of(options, combination), error);
    if (error) throw_io_error("create", folder_of(options, combination), error.message());
  }
  std::size_t runs = results.size();  // of this round: the best so far
  for (std::size_t round = 0; round < options.rounds; ++round) {
    const bool is_last = round + 1 == options.rounds;
    const std::size_t last_step =
        is_last ? 0 : std::max<std::size_t>(options.steps >> (options.rounds - 1 - round), 1);
    std::vector<ChildProcess> processes;
    for (std::size_t i = 0; i < runs; ++i) {
      processes.push_back(process_of(options, results[i].combination, last_step));
    }
    fmt::print(out, "round {} of {}: {} runs{}\n", round + 1, options.rounds, runs,
               last_step > 0 ? fmt::format(" to step {}", last_step) : "");
    run_all(processes, options.at_once, [&](std::size_t index, int status) {
      SweepResult& result = results[index];
      result.status = status;
      read_numbers(folder_of(options, result.combination), result);
      const std::string outcome =
          status == 0 ? "held-out loss " + or_dash(result.eval_loss)
                      : fmt::format("status {}, see {}", status, processes[index].log.string());
      fmt::print(out, "  {}: step {}, {}\n", folder_name(result.combination), result.steps,
                 outcome);
      std::fflush(out);
    });
    std::stable_sort(results.begin(), results.begin() + static_cast<std::ptrdiff_t>(runs),
                     is_better);
    const auto good = static_cast<std::size_t>(
        std::count_if(results.begin(), results.begin() + static_cast<std::ptrdiff_t>(runs),
                      std::not_fn(has_failed)));
    runs = std::min(good, (runs + 1) / 2);
  }
  std::ranges::stable_sort(results, is_better);
  return results;
}

std::string to_table(const std::vector<SweepResult>& results) {
  std::vector<std::vector<std::string>> rows(1);
  if (results.empty()) return "";
  for (const Setting& setting : results[0].combination) rows[0].push_back(setting.option);
  const auto named = std::ranges::find_if(results, [](const auto& r) { return !r.metric.empty(); });
  rows[0].insert(rows[0].end(), {"steps", "train loss", "held-out loss",
                                 named == results.end() ? "metric" : named->metric, "status"});
  for (const SweepResult& result : results) {
    std::vector<std::string>& row = rows.emplace_back();
    for (const Setting& setting : result.combination) row.push_back(setting.value);
    row.insert(row.end(), {fmt::format("{}", result.steps), or_dash(result.train_loss),
                           or_dash(result.eval_loss), or_dash(result.eval_metric),
                           result.status == 0 ? "ok" : fmt::format("{}", result.status)});
  }
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    for (std::size_t column = 0; column < row.size(); ++column) {
      std::size_t width = 0;
      for (const auto& other : rows) width = std::max(width, other[column].size());
      text += fmt::format("{:>{}}{}", row[column], width, column + 1 < row.size() ? "  " : "\n");
    }
  }
  return text;
}

std::string to_json(const std::vector<SweepResult>& results) {
  const auto or_null = [](const std::optional<double>& v) { return v ? Json(*v) : Json(nullptr); };
  Json runs = Json::array();
  for (const SweepResult& result : results) {
    Json options = Json::object();
    for (const Setting& setting : result.combination) options[setting.option] = setting.value;
    runs.push_back({{"options", std::move(options)},
                    {"folder", folder_name(result.combination)},
                    {"status", result.status},
                    {"steps", result.steps},
                    {"train_loss", or_null(result.train_loss)},
                    {"eval_loss", or_null(result.eval_loss)},
                    {"metric", result.metric},
                    {"eval_metric", or_null(result.eval_metric)}});
  }
  return runs.dump(2) + "\n";
}

}  // namespace kolo::trainer
