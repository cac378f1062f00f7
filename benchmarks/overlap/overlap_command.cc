#include <algorithm>
#include <deque>
#include <memory>
#include <numeric>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "benchmarks/common/commands.h"
#include "benchmarks/common/table.h"
#include "benchmarks/overlap/overlap_bench.h"
#include "benchmarks/peers/peers.h"
#include "runtime/options/version.h"
#include "runtime/tools/command_line.h"

namespace kolo::bench {
namespace {

struct OverlapCommand {
  Options runtime = {};
  std::size_t layers = 6, width = 384;
  std::vector<std::string> fusion_sizes = {"0", "1M", "4M", "16M"};
  std::vector<std::string> compare = {};
  std::string home = "arena", json = {}, label = {};
  OverlapOptions options = {};
};

nlohmann::json to_json(const Runtime& runtime, const OverlapCommand& command,
                       const OverlapRow& row) {
  const OverlapOptions& options = command.options;
  const std::size_t elements =
      std::accumulate(options.counts.begin(), options.counts.end(), std::size_t{0});
  return {{"system", row.system},
          {"algorithm", row.algorithm},
          {"calls", to_string(row.calls)},
          {"fusion_bytes", or_null(row.fusion_bytes)},
          {"gradients", options.counts.size()},
          {"bytes", elements * sizeof(float)},
          {"ranks", runtime.world_size()},
          {"nodes", runtime.num_nodes()},
          {"memory", row.fusion_bytes ? command.home : "user"},
          {"update_ms", options.update_ms},
          {"iterations", options.iterations},
          {"compute_us", row.compute_us},
          {"communication_us", row.communication_us},
          {"iteration_us", row.iteration_us},
          {"first_us", row.first_us},
          {"exposed_us", row.exposed_us},
          {"hidden_percent", row.hidden_percent},
          {"wrong", row.wrong},
          {"label", command.label}};
}

Table make_table(const Runtime& runtime, const OverlapCommand& command) {
  const std::vector<std::size_t>& counts = command.options.counts;
  const auto elements =
      static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
  return {
      runtime.rank() == 0,
      {fmt::format("kolo-bench overlap, kolo {}: {} gradients, {:.1f} MB, memory {}", kVersion,
                   counts.size(), elements * sizeof(float) / 1e6, command.home),
       fmt::format("{} ranks on {} nodes, {} cores here, medians of the slowest rank, us",
                   runtime.world_size(), runtime.num_nodes(), std::thread::hardware_concurrency())},
      {{"system", 6},
       {"calls", 7},
       {"fusion_bytes", 12},
       {"algorithm", -26},
       {"compute_us", 12, 1},
       {"communication_us", 12, 1, "comm_us"},
       {"iteration_us", 12, 1},
       {"first_us", 12, 1},
       {"exposed_us", 12, 1},
       {"hidden_percent", 14, 1},
       {"wrong", 6}}};
}

bool run(OverlapCommand& command) {
  command.options.counts = transformer_gradients(command.layers, command.width);
  Peers peers(command.compare);
  peers.keep_launcher();
  // Each fusion size has a runtime, because it is an option of the runtime.
  std::deque<Runtime> runtimes;
  std::vector<std::unique_ptr<OverlapSystem>> systems;
  for (const std::size_t size : parse_sizes("--fusion-sizes", command.fusion_sizes)) {
    command.runtime.fusion_bytes = size;
    Runtime& runtime = runtimes.emplace_back(Runtime::from_environment(command.runtime));
    systems.push_back(make_kolo_overlap(runtime, command.options.counts,
                                        command.home == "arena" ? Home::kArena : Home::kUser));
  }
  Runtime& runtime = runtimes.front();
  expect_output(runtime, command.json);
  const auto blocking = peers.connect(runtime);
  for (const auto& peer : blocking) {
    for (const Calls calls : {Calls::kFlat, Calls::kPacked, Calls::kEach}) {
      systems.push_back(make_blocking_overlap(runtime, *peer, command.options.counts, calls));
    }
  }

  const std::vector<OverlapRow> rows = measure_overlap(runtime, systems, command.options);
  Table table = make_table(runtime, command);
  for (const OverlapRow& row : rows) table.add(to_json(runtime, command, row));
  systems.clear();
  for (Runtime& each : runtimes) each.close();
  table.write(command.json);
  return std::ranges::all_of(rows, [](const OverlapRow& row) { return row.wrong == 0; });
}

}  // namespace

Command add_overlap(CLI::App& app) {
  CLI::App& command =
      *app.add_subcommand("overlap", "Communication that a backward pass hides, by fusion size");
  auto state = std::make_shared<OverlapCommand>();
  command
      .add_option("--layers", state->layers, "Layers of the transformer whose gradients are summed")
      ->check(CLI::PositiveNumber);
  command
      .add_option("--width", state->width,
                  "Width of the transformer; a layer has 12 width² parameters")
      ->check(CLI::PositiveNumber);
  command
      .add_option("--compute-ms", state->options.compute_ms,
                  "Computing time of the backward pass in milliseconds")
      ->check(CLI::PositiveNumber);
  command
      .add_option(
          "--update-ms", state->options.update_ms,
          "Computing time of the update in milliseconds, which goes layer by layer, first to "
          "last, where a system can wait for one gradient")
      ->check(CLI::NonNegativeNumber);
  command
      .add_option(
          "--fusion-sizes", state->fusion_sizes,
          "Fusion sizes in bytes, comma-separated, measured alternately; 0 sends each gradient "
          "alone")
      ->delimiter(',');
  command.add_option("--memory", state->home, "Where Kolo's gradients live: arena or user")
      ->check(one_of({"arena", "user"}));
  command
      .add_option(
          "--compare", state->compare,
          "Systems with blocking calls to measure beside Kolo: mpi and gloo, comma-separated. Each "
          "is measured with one call for adjacent gradients (flat), with one call and copies into "
          "and out of a buffer (packed), and with one call per gradient (each)")
      ->check(one_of({"mpi", "gloo"}))
      ->delimiter(',');
  command.add_option("--iterations", state->options.iterations, "Iterations of every system")
      ->check(CLI::Range(1, 100'000));
  command.add_option("--json", state->json, "Write the rows to this file");
  command.add_option("--label", state->label, "Text that every row of the JSON carries");
  add_runtime_options(command, state->runtime, [](std::string_view name) {
    return name != "fusion_bytes" && name != "compression";
  });
  return {&command, [state, &command] {
            require_read(command, {{"--label", !state->json.empty(), "--json"}});
            return run(*state);
          }};
}

}  // namespace kolo::bench
