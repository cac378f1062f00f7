#pragma once

#include <string>
#include <vector>

#include "benchmarks/sim/sim_cluster.h"

namespace CLI {
class App;
}  // namespace CLI

namespace kolo::bench {

/// The command line of kolo-sim.
struct Arguments {
  std::vector<int> ranks = {8};
  int ranks_per_node = 1;
  int nodes = 0;
  std::vector<double> gbit;
  std::string link_costs, memory = "arena", json, wire, dtype = "float32";
  std::vector<std::string> collectives;
  std::vector<std::string> algorithms = {"auto"}, bytes = {"4", "1K", "64K", "1M", "16M", "64M"};
  std::vector<std::string> models = {"resnet50"}, compressions = {"none"};
  std::string chunk_bytes, fusion_bytes, eager_bytes;
  ClusterSpec cluster;
  int batch = 0;
  double tflops = 60, compute_ms = 0;
  std::vector<std::string> measured;
  std::string column = "median_us";
};

// Options of several commands, each with its default.

/// Costs, sizes of chunks and the JSON file.
void add_costs(CLI::App& app, Arguments& arguments);
/// Ranks, nodes, links and stragglers.
void add_cluster(CLI::App& app, Arguments& arguments);
/// Algorithm and memory of all-reduces.
void add_buckets(CLI::App& app, Arguments& arguments);
/// Names and sizes of other collectives.
void add_collectives(CLI::App& app, Arguments& arguments);

}  // namespace kolo::bench
