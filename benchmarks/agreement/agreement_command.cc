#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "benchmarks/common/commands.h"
#include "benchmarks/common/exchange.h"
#include "benchmarks/common/samples.h"
#include "benchmarks/common/table.h"
#include "runtime/api/kolo.h"
#include "runtime/options/version.h"
#include "runtime/tools/command_line.h"

namespace kolo::bench {
namespace {

struct AgreementOptions {
  Options runtime = {};
  std::vector<std::string> sizes = {"0", "64M"};
  std::size_t agreements = 10, rounds = 5;
  std::string json = {};
};

struct AgreementRow {
  std::size_t bytes = 0;  ///< Size of the bucket in flight.
  Summary time_us = {};   ///< The slowest rank's time of each barrier, in microseconds.
  bool beside = true;     ///< In every round, a rank's bucket was in flight after the last barrier.
};

/// Measures successive barriers while an all-reduce of `bytes` bytes is in flight. Collective.
AgreementRow measure(Runtime& runtime, std::size_t bytes, const AgreementOptions& options) {
  std::vector<float> bucket(bytes / sizeof(float));
  AgreementRow row{.bytes = bytes};
  std::vector<double> times_us;
  // The first round is not counted, because it plans the bucket.
  for (std::size_t round = 0; round <= options.rounds; ++round) {
    runtime.barrier().wait();
    Ticket ticket = runtime.all_reduce("agreement's bucket", {bucket.data(), bucket.size()});
    // The sleep lets the all-reduce fill the network.
    if (bytes > 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::vector<double> round_us;
    for (std::size_t i = 0; i < options.agreements; ++i) {
      round_us.push_back(time_us([&] { runtime.barrier().wait(); }));
    }
    double under_way = ticket.done() ? 0 : 1;
    ticket.wait();
    max_over_ranks(runtime, round_us);
    max_over_ranks(runtime, {&under_way, 1});
    if (round == 0) continue;
    row.beside = row.beside && (bytes == 0 || under_way > 0);
    times_us.insert(times_us.end(), round_us.begin(), round_us.end());
  }
  row.time_us = summarise(std::move(times_us));
  return row;
}

nlohmann::json to_json(const Runtime& runtime, const AgreementRow& row) {
  return {{"measured", "barrier"},
          {"bytes_under_way", row.bytes},
          {"ranks", runtime.world_size()},
          {"nodes", runtime.num_nodes()},
          {"median_us", row.time_us.median},
          {"min_us", row.time_us.min},
          {"p99_us", or_null(row.time_us.p99)},
          {"was_under_way", row.beside}};
}

bool run(AgreementOptions& options) {
  const std::vector<std::size_t> sizes = parse_sizes("--sizes", options.sizes);
  Runtime runtime = Runtime::from_environment(options.runtime);
  expect_output(runtime, options.json);
  Table table(runtime.rank() == 0,
              {fmt::format("kolo-bench agreement, kolo {}: {} ranks on {} nodes, slowest rank, us",
                           kVersion, runtime.world_size(), runtime.num_nodes())},
              {{"bytes_under_way", 16},
               {"median_us", 10, 1},
               {"min_us", 10, 1},
               {"p99_us", 10, 1},
               {"was_under_way", 14}});
  for (const std::size_t size : sizes) table.add(to_json(runtime, measure(runtime, size, options)));
  runtime.close();
  table.write(options.json);
  return true;
}

}  // namespace

Command add_agreement(CLI::App& app) {
  CLI::App& command = *app.add_subcommand(
      "agreement", "Time of a barrier of all ranks, alone and beside a bucket in flight");
  auto options = std::make_shared<AgreementOptions>();
  command
      .add_option("--sizes", options->sizes,
                  "Bytes of the bucket in flight, comma-separated, with suffixes K, M and G; 0: no "
                  "bucket")
      ->delimiter(',');
  command
      .add_option("--agreements", options->agreements,
                  "Number of successive barriers beside one bucket")
      ->check(CLI::PositiveNumber);
  command.add_option("--rounds", options->rounds, "Number of buckets of each size")
      ->check(CLI::PositiveNumber);
  command.add_option("--json", options->json, "Write the rows to this file");
  add_runtime_options(command, options->runtime,
                      [](std::string_view name) { return !is_of_gradients(name); });
  return {&command, [options] { return run(*options); }};
}

}  // namespace kolo::bench
