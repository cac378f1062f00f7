#include "benchmarks/overlap/overlap_command.h"

#include <algorithm>
#include <deque>
#include <numeric>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "benchmarks/common/json_file.h"
#include "benchmarks/peers/peer_factory.h"
#include "runtime/api/version.h"
#include "runtime/tools/command_line.h"

namespace kolo::bench {
namespace {

void print(const Runtime& runtime, const OverlapOptions& options, const std::string& home,
           const std::vector<OverlapRow>& rows) {
  const std::size_t elements =
      std::accumulate(options.counts.begin(), options.counts.end(), std::size_t{0});
  fmt::print("# kolo-bench overlap, kolo {}: {} gradients, {:.1f} MB, memory {}\n", kVersion,
             options.counts.size(), static_cast<double>(elements) * sizeof(float) / 1e6, home);
  fmt::print("# {} ranks on {} nodes, {} cores here, medians of the slowest rank, ms\n",
             runtime.world_size(), runtime.num_nodes(), std::thread::hardware_concurrency());
  fmt::print("# {:>6} {:>7} {:>10} {:<26} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8} {:>6}\n", "system",
             "calls", "fusion", "algo", "compute", "comm", "both", "first", "exposed", "hidden",
             "#wrong");
  for (const OverlapRow& row : rows) {
    fmt::print(
        "  {:>6} {:>7} {:>10} {:<26} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} "
        "{:>7.1f}% {:>6}\n",
        row.system, to_string(row.calls),
        row.fusion_bytes ? fmt::to_string(*row.fusion_bytes) : "-", row.algorithm,
        row.compute_us / 1e3, row.communication_us / 1e3, row.iteration_us / 1e3,
        row.first_us / 1e3, row.exposed_us / 1e3, row.hidden_percent, row.wrong);
  }
}

nlohmann::json to_json(const Runtime& runtime, const OverlapOptions& options,
                       const std::string& home, const std::string& label, const OverlapRow& row) {
  const std::size_t elements =
      std::accumulate(options.counts.begin(), options.counts.end(), std::size_t{0});
  return {{"system", row.system},
          {"algorithm", row.algorithm},
          {"calls", to_string(row.calls)},
          {"fusion_bytes",
           row.fusion_bytes ? nlohmann::json(*row.fusion_bytes) : nlohmann::json(nullptr)},
          {"gradients", options.counts.size()},
          {"bytes", elements * sizeof(float)},
          {"ranks", runtime.world_size()},
          {"nodes", runtime.num_nodes()},
          {"memory", row.fusion_bytes ? home : "user"},
          {"update_ms", options.update_ms},
          {"iterations", options.iterations},
          {"compute_us", row.compute_us},
          {"communication_us", row.communication_us},
          {"iteration_us", row.iteration_us},
          {"first_us", row.first_us},
          {"exposed_us", row.exposed_us},
          {"hidden_percent", row.hidden_percent},
          {"wrong", row.wrong},
          {"label", label}};
}

}  // namespace

OverlapCommand::OverlapCommand(CLI::App& app)
    : command_(*app.add_subcommand("overlap",
                                   "Communication that a backward pass hides, by fusion size")) {
  command_.add_option("--layers", layers_, "Layers of the transformer whose gradients are summed")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command_
      .add_option("--width", width_, "Width of the transformer; a layer has 12 width² parameters")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command_
      .add_option("--compute-ms", options_.compute_ms,
                  "Computing time of the backward pass in milliseconds")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command_
      .add_option(
          "--update-ms", options_.update_ms,
          "Computing time of the update in milliseconds, which goes layer by layer, first to "
          "last, where a system can wait for one gradient")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command_
      .add_option(
          "--fusion-sizes", fusion_sizes_,
          "Fusion sizes in bytes, comma-separated, measured alternately; 0 sends each gradient "
          "alone")
      ->delimiter(',')
      ->capture_default_str();
  command_.add_option("--memory", home_, "Where Kolo's gradients live: arena or user")
      ->check(one_of({"arena", "user"}))
      ->capture_default_str();
  command_
      .add_option(
          "--compare", compare_,
          "Systems with blocking calls to measure beside Kolo: mpi and gloo, comma-separated. Each "
          "is measured with one call for adjacent gradients (flat), with one call and copies into "
          "and out of a buffer (packed), and with one call per gradient (each)")
      ->check(one_of({"mpi", "gloo"}))
      ->delimiter(',');
  command_.add_option("--iterations", options_.iterations, "Iterations of every system")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  command_.add_option("--json", json_, "Write the rows to this file");
  command_.add_option("--label", label_, "Text that every row of the JSON carries");
  add_runtime_options(command_, runtime_, [](std::string_view name) {
    return name != "fusion_bytes" && name != "compression";
  });
}

bool OverlapCommand::run() {
  require_read(command_, {{"--label", !json_.empty(), "--json"}});
  options_.counts = transformer_gradients(layers_, width_);
  Peers peers(compare_);
  peers.keep_launcher();
  // A runtime has one fusion size, so there are several runtimes.
  std::deque<Runtime> runtimes;
  std::vector<std::unique_ptr<OverlapSystem>> systems;
  for (const std::size_t size : parse_sizes("--fusion-sizes", fusion_sizes_)) {
    runtime_.fusion_bytes = size;
    Runtime& runtime = runtimes.emplace_back(Runtime::from_environment(runtime_));
    systems.push_back(
        make_kolo_overlap(runtime, options_.counts, home_ == "arena" ? Home::kArena : Home::kUser));
  }
  Runtime& runtime = runtimes.front();
  const bool speaks = runtime.rank() == 0;
  expect_output(runtime, json_);
  const auto blocking = peers.connect(runtime);
  for (const auto& peer : blocking) {
    for (const Calls calls : {Calls::kFlat, Calls::kPacked, Calls::kEach}) {
      systems.push_back(make_blocking_overlap(runtime, *peer, options_.counts, calls));
    }
  }

  const std::vector<OverlapRow> rows = measure_overlap(runtime, systems, options_);
  nlohmann::json json = nlohmann::json::array();
  for (const OverlapRow& row : rows) {
    json.push_back(to_json(runtime, options_, home_, label_, row));
  }
  if (speaks) print(runtime, options_, home_, rows);
  systems.clear();
  for (Runtime& each : runtimes) each.close();
  if (speaks) write_json(json_, json);
  return std::ranges::all_of(rows, [](const OverlapRow& row) { return row.wrong == 0; });
}

}  // namespace kolo::bench
