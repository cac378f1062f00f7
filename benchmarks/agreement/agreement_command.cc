#include "benchmarks/agreement/agreement_command.h"

#include <chrono>
#include <cstdio>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "benchmarks/agreement/agreement_trips.h"
#include "benchmarks/common/exchange.h"
#include "benchmarks/common/json_file.h"
#include "benchmarks/common/samples.h"
#include "benchmarks/peers/peer_factory.h"
#include "comm/rendezvous/rendezvous_factory.h"
#include "runtime/api/kolo.h"
#include "runtime/api/version.h"
#include "runtime/tools/command_line.h"

namespace kolo::bench {
namespace {

using std::chrono::steady_clock;

struct AgreementRow {
  std::size_t bytes = 0;  ///< Size of the bucket in flight.
  Summary time_us = {};   ///< Times of the slowest rank.
  bool beside = true;     ///< On some rank the bucket was in flight for the whole time.
};

/// Successive barriers beside an all-reduce of `bytes`.
AgreementRow measure(Runtime& runtime, std::size_t bytes, std::size_t agreements,
                     std::size_t rounds) {
  std::vector<float> bucket(bytes / sizeof(float));
  AgreementRow row{.bytes = bytes};
  std::vector<double> times_us;
  // The first round plans the bucket.
  for (std::size_t round = 0; round <= rounds; ++round) {
    runtime.barrier();
    Ticket ticket = runtime.all_reduce_async("agreement's bucket", {bucket.data(), bucket.size()});
    // Until the network is full.
    if (bytes > 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::vector<double> round_us;
    for (std::size_t i = 0; i < agreements; ++i) {
      const auto begin = steady_clock::now();
      runtime.barrier();
      round_us.push_back(
          std::chrono::duration<double, std::micro>(steady_clock::now() - begin).count());
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

nlohmann::json to_json(const Runtime& runtime, std::string_view what, const Summary& time_us) {
  return {{"measured", what},
          {"ranks", runtime.world_size()},
          {"nodes", runtime.num_nodes()},
          {"median_us", time_us.median},
          {"min_us", time_us.min},
          {"p99_us", time_us.p99 ? nlohmann::json(*time_us.p99) : nullptr}};
}

void print_times(std::string_view what, const Summary& time_us) {
  fmt::print("  {:>30} {:>10.1f} {:>10.1f} {:>10}\n", what, time_us.median, time_us.min,
             time_us.p99 ? fmt::format("{:.1f}", *time_us.p99) : "-");
}

void print_trips(const AgreementTrips& trips) {
  fmt::print("# {:>30} {:>10} {:>10} {:>10}\n", "us", "median", "min", "p99");
  print_times("last rank ready to start", trips.agree_us);
  if (!trips.network_us) return;
  print_times("UCX round trip", *trips.network_us);
  fmt::print("# the agreement takes {:.2f} round trips\n",
             trips.agree_us.median / trips.network_us->median);
}

nlohmann::json to_json(const Runtime& runtime, const AgreementRow& row) {
  return {{"measured", "barrier"},
          {"bytes_under_way", row.bytes},
          {"ranks", runtime.world_size()},
          {"nodes", runtime.num_nodes()},
          {"median_us", row.time_us.median},
          {"min_us", row.time_us.min},
          {"p99_us", row.time_us.p99 ? nlohmann::json(*row.time_us.p99) : nullptr},
          {"was_under_way", row.beside}};
}

}  // namespace

AgreementCommand::AgreementCommand(CLI::App& app)
    : command_(*app.add_subcommand(
          "agreement", "Time that ranks take to agree, alone and beside a bucket in flight")) {
  command_
      .add_option("--sizes", sizes_,
                  "Bytes of the bucket in flight, comma-separated, with suffixes K, M and G; 0: no "
                  "bucket")
      ->delimiter(',')
      ->capture_default_str();
  command_
      .add_option("--agreements", agreements_, "Number of successive barriers beside one bucket")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command_.add_option("--rounds", rounds_, "Number of buckets of each size")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command_.add_option("--json", json_, "Write the rows to this file");
  add_runtime_options(command_, runtime_,
                      [](std::string_view name) { return !is_of_gradients(name); });
}

bool AgreementCommand::run() {
  const std::vector<std::size_t> sizes = parse_sizes("--sizes", sizes_);
  Peers launcher({});
  launcher.keep_launcher();
  const AgreementTrips trips = measure_trips(*rendezvous_from_environment(runtime_.connect_timeout),
                                             runtime_, agreements_ * rounds_ * 10);
  Runtime runtime = Runtime::from_environment(runtime_);
  const bool speaks = runtime.rank() == 0;
  expect_output(runtime, json_);
  if (speaks) {
    fmt::print("# kolo-bench agreement, kolo {}: {} ranks on {} nodes, slowest rank, us\n",
               kVersion, runtime.world_size(), runtime.num_nodes());
    print_trips(trips);
    fmt::print("# {:>10} {:>10} {:>10} {:>10}\n", "in flight", "median", "min", "p99");
  }
  nlohmann::json rows = nlohmann::json::array();
  rows.push_back(to_json(runtime, "last rank ready to start", trips.agree_us));
  if (trips.network_us) rows.push_back(to_json(runtime, "UCX round trip", *trips.network_us));
  for (const std::size_t size : sizes) {
    const AgreementRow row = measure(runtime, size, agreements_, rounds_);
    rows.push_back(to_json(runtime, row));
    if (!speaks) continue;
    fmt::print("  {:>10} {:>10.1f} {:>10.1f} {:>10}{}\n", row.bytes, row.time_us.median,
               row.time_us.min, row.time_us.p99 ? fmt::format("{:.1f}", *row.time_us.p99) : "-",
               row.beside ? "" : "  (the bucket was done before)");
    std::fflush(stdout);
  }
  runtime.close();
  if (speaks) write_json(json_, rows);
  return true;
}

}  // namespace kolo::bench
