#include "benchmarks/codec/error_command.h"

#include <cstdio>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "benchmarks/common/json_file.h"
#include "comm/base/output_file.h"

namespace kolo::bench {
namespace {

constexpr double kOneRounding = 0.51;

nlohmann::json to_json(const MeanErrorRow& row, const MeanErrorOptions& options) {
  return {{"wire", to_string(row.wire)}, {"ranks", row.ranks},
          {"method", row.method},        {"per_node", row.per_node},
          {"most_ulp", row.error.most},  {"rms_ulp", row.error.rms},
          {"count", options.count},      {"deviation", options.deviation},
          {"seed", options.seed}};
}

}  // namespace

ErrorCommand::ErrorCommand(CLI::App& app)
    : command_(*app.add_subcommand(
          "error",
          "Error of a mean over 16-bit contributions, beside a ring's, on simulated ranks")) {
  command_.add_option("--ranks", ranks_, "Numbers of ranks, comma-separated")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command_.add_option("--count", options_.count, "Elements of a contribution")
      ->check(CLI::Range(1, 1 << 26))
      ->capture_default_str();
  command_
      .add_option("--deviation", options_.deviation,
                  "Standard deviation of the contributions, whose mean is 1")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command_.add_option("--seed", options_.seed, "Seed of the contributions")->capture_default_str();
  command_.add_option("--json", json_, "Write the rows to this file");
}

bool ErrorCommand::chosen() const { return command_.parsed(); }

bool ErrorCommand::run() const {
  if (!json_.empty()) expect_writable(json_);
  fmt::print("# kolo-bench error, {} elements, deviation {}, seed {}; in units in the last place\n",
             options_.count, options_.deviation, options_.seed);
  fmt::print("# {:<10} {:>6} {:<20} {:>8} {:>8} {:>8}\n", "wire", "ranks", "method", "per node",
             "most", "rms");
  bool within = true;
  nlohmann::json rows = nlohmann::json::array();
  for (const DType wire : {DType::kFloat16, DType::kBFloat16}) {
    for (const int ranks : ranks_) {
      for (const MeanErrorRow& row : measure_mean_errors(wire, ranks, options_)) {
        fmt::print("  {:<10} {:>6} {:<20} {:>8} {:>8.4f} {:>8.4f}\n", to_string(wire), ranks,
                   row.method, row.per_node, row.error.most, row.error.rms);
        within = within && (row.method != "direct" || row.error.most <= kOneRounding);
        rows.push_back(to_json(row, options_));
      }
    }
  }
  std::fflush(stdout);
  write_json(json_, rows);
  return within;
}

}  // namespace kolo::bench
