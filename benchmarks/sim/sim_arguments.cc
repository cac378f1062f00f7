#include "benchmarks/sim/sim_arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "comm/schedule/goal.h"
#include "runtime/tools/command_line.h"

namespace kolo::bench {
namespace {

/// But all-reduce, which has a command of its own.
std::vector<std::string> other_collectives() {
  std::vector<std::string> names = goal_kind_names();
  std::erase(names, "all-reduce");
  return names;
}

}  // namespace

void add_costs(CLI::App& app, Arguments& arguments) {
  app.add_option(
      "--link-costs", arguments.link_costs,
      "Link costs, KEY=VALUE,... as kolo-topo prints them; keys left out keep the values of "
      "the measured rows (check) or their defaults");
  app.add_option("--chunk-bytes", arguments.chunk_bytes,
                 "Chunk size in bytes, with suffixes K, M and G [1M; device 32M]");
  app.add_option(
      "--eager-bytes", arguments.eager_bytes,
      "Between nodes, buckets of at most this many bytes start without agreement [256K]");
  app.add_option("--json", arguments.json, "Write the rows to this file");
}

void add_cluster(CLI::App& app, Arguments& arguments) {
  app.add_option("--ranks", arguments.ranks, "Numbers of ranks, comma-separated")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--nodes", arguments.nodes, "Number of nodes, in place of --ranks")
      ->check(CLI::Range(1, 4096));
  app.add_option("--ranks-per-node", arguments.ranks_per_node,
                 "Ranks of each node; fewer ranks share one node")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--gbit", arguments.gbit,
                 "Rates of a node's link in Gbit/s, comma-separated, in place of the bandwidth in "
                 "--link-costs; 95.7 % of the rate is payload")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  app.add_flag("--full", arguments.cluster.full,
               "Play the schedule of every rank, even where one node can represent all");
  Stragglers& stragglers = arguments.cluster.stragglers;
  app.add_option("--late-us", stragglers.late_us,
                 "Mean delay of a rank in microseconds, distributed exponentially; 0 or more")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber)
      ->group("Stragglers");
  app.add_option("--slow-share", stragglers.slow_share, "Share of ranks that are slow")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0))
      ->group("Stragglers");
  app.add_option("--slow-factor", stragglers.slow_factor,
                 "Computing time of a slow rank, as a multiple of the others'")
      ->capture_default_str()
      ->check(CLI::Range(1.0, 1e6))
      ->group("Stragglers");
  app.add_option("--seed", stragglers.seed, "Seed that picks delayed and slow ranks")
      ->capture_default_str()
      ->group("Stragglers");
}

void add_buckets(CLI::App& app, Arguments& arguments) {
  app.add_option("--algorithm", arguments.algorithms,
                 "Algorithm, as for kolo-train; repeat the option for several")
      ->capture_default_str();
  app.add_option("--memory", arguments.memory,
                 "arena (zero copy), user (packed), device or device-user (the same on a GPU)")
      ->check(one_of({"arena", "user", "device", "device-user"}))
      ->capture_default_str();
}

void add_collectives(CLI::App& app, Arguments& arguments) {
  app.add_option(
         "--collective", arguments.collectives,
         "Collectives, comma-separated: " + fmt::format("{}", fmt::join(other_collectives(), ", ")))
      ->delimiter(',')
      ->check(one_of(other_collectives()))
      ->required();
  app.add_option("--memory", arguments.memory, "user (of the host) or device")
      ->check(one_of({"user", "device"}))
      ->default_str("user");
  app.add_option("--bytes", arguments.bytes, "Bytes of the parts of all ranks, comma-separated")
      ->delimiter(',')
      ->capture_default_str();
}

}  // namespace kolo::bench
