#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "benchmarks/codec/mean_error.h"
#include "benchmarks/common/commands.h"
#include "benchmarks/common/table.h"
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

struct ErrorOptions {
  std::vector<int> ranks = {2, 3, 6, 7, 12, 16, 32, 64};
  MeanErrorOptions error = {};
  std::string json = {};
};

/// Returns true if all errors of "direct" are within the bound of one rounding.
bool run(const ErrorOptions& options) {
  if (!options.json.empty()) expect_writable(options.json);
  Table table(/*speaks=*/true,
              {fmt::format("kolo-bench error, {} elements, deviation {}, seed {}; in units in the "
                           "last place",
                           options.error.count, options.error.deviation, options.error.seed)},
              {{"wire", -10},
               {"ranks", 6},
               {"method", -20},
               {"per_node", 8},
               {"most_ulp", 8, 4},
               {"rms_ulp", 8, 4}});
  bool within = true;
  for (const DType wire : {DType::kFloat16, DType::kBFloat16}) {
    for (const int ranks : options.ranks) {
      for (const MeanErrorRow& row : measure_mean_errors(wire, ranks, options.error)) {
        within = within && (row.method != "direct" || row.error.most <= kOneRounding);
        table.add(to_json(row, options.error));
      }
    }
  }
  table.write(options.json);
  return within;
}

}  // namespace

Command add_error(CLI::App& app) {
  CLI::App& command = *app.add_subcommand(
      "error", "Error of a mean over 16-bit contributions, beside a ring's, on simulated ranks");
  auto options = std::make_shared<ErrorOptions>();
  command.add_option("--ranks", options->ranks, "Numbers of ranks, comma-separated")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096));
  command.add_option("--count", options->error.count, "Elements of a contribution")
      ->check(CLI::Range(1, 1 << 26));
  command
      .add_option("--deviation", options->error.deviation,
                  "Standard deviation of the contributions, whose mean is 1")
      ->check(CLI::PositiveNumber);
  command.add_option("--seed", options->error.seed, "Seed of the contributions");
  command.add_option("--json", options->json, "Write the rows to this file");
  return {&command, [options] { return run(*options); }};
}

}  // namespace kolo::bench
