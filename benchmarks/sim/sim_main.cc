// kolo-sim: predicts all-reduces, steps and memory on simulated clusters.

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "benchmarks/sim/mesh_prediction.h"
#include "benchmarks/sim/predictions.h"
#include "benchmarks/sim/sim_arguments.h"
#include "comm/base/output_file.h"
#include "comm/schedule/collective_spec.h"
#include "compression/compression_spec.h"
#include "runtime/options/version.h"
#include "runtime/tools/command_line.h"
#include "topology/link_costs.h"

namespace kolo::bench {
namespace {

/// Refuses options that this call does not use. Errors: UsageError.
void require_options_read(const CLI::App& command, const Arguments& arguments) {
  const auto has = [&](const char* flag) { return command.count(flag) > 0; };
  require_read(command, {{"--ranks", !has("--nodes"), "calls without --nodes"},
                         {"--slow-share", has("--slow-factor"), "--slow-factor"},
                         {"--slow-factor", has("--slow-share"), "--slow-share"},
                         {"--seed", has("--late-us") || has("--slow-share"),
                          "--late-us, or --slow-share with --slow-factor"}});
  if (command.get_name() == "mesh" || command.get_name() == "step") {
    require_read(command, {{"--tflops", !has("--compute-ms"), "calls without --compute-ms"}});
  }
  if (command.get_name() != "step") return;
  const bool is_dense = std::ranges::all_of(arguments.compressions, [](const std::string& text) {
    return !CompressionRules::parse(text).any(&CompressionSpec::has_codec);
  });
  require_read(command, {{"--batch", !has("--compute-ms"), "calls without --compute-ms"},
                         {"--compression", is_dense || !arguments.memory.starts_with("device"),
                          "--memory arena and user, but for methods without a codec"}});
}

Table run_all_reduce(const Arguments& arguments) {
  const DType dtype = dtype_of(arguments.dtype);
  Table table = make_table(
      "all-reduce",
      {{"algorithm", -36}, {"time_us", 12, 2}, {"algbw_GBps", 10, 3}, {"busbw_GBps", 10, 3}});
  for (const Point& point : points(arguments)) {
    Cluster cluster(cluster_spec(arguments, point));
    for (const std::size_t bytes : parse_sizes("--bytes", arguments.bytes)) {
      const BucketLayout layout = cluster.layout(bytes / size_of(dtype), dtype);
      const double us = cluster.run({layout}, {0})[0];
      const double algbw = static_cast<double>(bytes) / us / 1000;
      table.add(row_of(cluster.spec(), arguments,
                       {{"size", bytes},
                        {"count", bytes / size_of(dtype)},
                        {"dtype", arguments.dtype},
                        {"algorithm", cluster.algorithm(layout).name()},
                        {"time_us", us},
                        {"algbw_GBps", algbw},
                        {"busbw_GBps", algbw * 2 * (point.ranks - 1) / point.ranks}}));
    }
  }
  return table;
}

Table run_collective(const Arguments& arguments) {
  Table table = make_table("collective", {{"collective", -15},
                                          {"algorithm", -12},
                                          {"is_choice", 9},
                                          {"price_us", 12, 2},
                                          {"time_us", 12, 2}});
  for (const Point& point : points(arguments)) {
    Cluster cluster(cluster_spec(arguments, point));
    for (const std::string& collective : arguments.collectives) {
      for (const std::size_t bytes : parse_sizes("--bytes", arguments.bytes)) {
        for (const CollectiveTime& each : collective_times(cluster, collective, bytes)) {
          table.add(row_of(cluster.spec(), arguments,
                           {{"size", bytes},
                            {"collective", collective},
                            {"algorithm", each.algorithm},
                            {"is_choice", each.is_choice},
                            {"price_us", each.predicted_us},
                            {"time_us", each.simulated_us}}));
        }
      }
    }
  }
  return table;
}

StepSpec step_spec(const Arguments& arguments, const std::string& model,
                   const std::string& compression) {
  StepSpec spec{.model = model_preset(model), .compression = compression};
  if (arguments.batch > 0) spec.model.batch = arguments.batch;
  spec.flops_per_us = arguments.tflops * 1e6;
  if (arguments.compute_ms > 0) spec.compute_us = arguments.compute_ms * 1000;
  if (!arguments.wire.empty()) spec.wire_dtype = dtype_of(arguments.wire);
  if (!arguments.fusion_bytes.empty()) {
    spec.fusion_bytes = spec.device_fusion_bytes =
        parse_size("--fusion-bytes", arguments.fusion_bytes);
  }
  return spec;
}

void add_step_row(const Arguments& arguments, const Point& point, const StepSpec& spec,
                  Table& table) {
  Cluster cluster(cluster_spec(arguments, point));
  const StepTimes times = predict_step(cluster, spec);
  std::vector<std::string> decisions;
  for (const CompressionDecision& each : times.decisions) decisions.push_back(to_string(each));
  table.add(row_of(cluster.spec(), arguments,
                   {{"model", spec.model.name},
                    {"parameters", spec.model.parameters()},
                    {"algorithm", point.algorithm},
                    {"wire", arguments.wire.empty() ? "float32" : arguments.wire},
                    {"compression", spec.compression},
                    {"compression_decisions", decisions},
                    {"buckets", times.buckets},
                    {"sparse_buckets", times.sparse_buckets},
                    {"wire_bytes", times.wire_bytes},
                    {"compute_ms", times.compute_us / 1000},
                    {"step_ms", times.step_us / 1000},
                    {"exposed_comm_ms", times.exposed_us / 1000},
                    {"efficiency", times.efficiency()}}));
  for (const std::string& text : decisions) table.note("  " + text);
}

Table run_step(const Arguments& arguments) {
  Table table = make_table("step",
                           {{"algorithm", -30},
                            {"compression", -14},
                            {"buckets", 8},
                            {"compute_ms", 12, 2},
                            {"step_ms", 12, 2},
                            {"exposed_comm_ms", 15, 2},
                            {"efficiency", 10, 4}},
                           "model");
  for (const std::string& model : arguments.models) {
    for (const std::string& compression : arguments.compressions) {
      const StepSpec spec = step_spec(arguments, model, compression);
      for (const Point& point : points(arguments)) add_step_row(arguments, point, spec, table);
    }
  }
  return table;
}

Table run_mesh(const Arguments& arguments, const std::vector<std::string>& options) {
  const MeshJob job(options);
  Table table = make_table("mesh",
                           {{"mesh", -32},
                            {"parameters", 12},
                            {"optimizer_bytes", 15},
                            {"activation_bytes", 16},
                            {"bubble", 8, 4},
                            {"step_ms", 12, 2}},
                           "model");
  for (const Point& point : points(arguments)) {
    const ClusterSpec spec = cluster_spec(arguments, point);
    table.add(row_of(spec, arguments,
                     job.predict(spec, arguments.tflops * 1e6, arguments.compute_ms * 1000)));
  }
  return table;
}

Table run_check(const Arguments& arguments) {
  const ClusterSpec spec = cluster_spec(arguments, {1, 0, "auto"});
  CompileOptions compile = spec.compile;
  if (arguments.chunk_bytes.empty()) compile.chunk_bytes = 0;
  std::vector<std::pair<std::string, MeasuredRow>> measured;
  for (const std::string& file : arguments.measured) {
    for (MeasuredRow& row : read_measured(file, arguments.column)) {
      measured.emplace_back(file, std::move(row));
    }
  }
  Table table = make_table(
      "check",
      {{"algorithm", -28}, {"predicted_us", 14, 2}, {"measured_us", 14, 2}, {"error", 9, 3}});
  std::vector<double> errors;
  for (const auto& [file, row] : measured) {
    MachineCosts costs = spec.costs;
    costs.links = link_costs(arguments, row.link_costs);
    const double predicted_us = predict_us(row, costs, compile);
    const double error = predicted_us / row.time_us - 1;
    errors.push_back(std::abs(error));
    table.add({{"file", file},
               {"size", row.bytes},
               {"ranks", row.ranks},
               {"nodes", row.nodes},
               {"network_gbit", gbit_of(costs.links)},
               {"algorithm", row.algorithm},
               {"predicted_us", predicted_us},
               {"measured_us", row.time_us},
               {"error", error},
               {"link_costs", to_string(costs.links)}});
  }
  std::sort(errors.begin(), errors.end());
  table.note(fmt::format("{} of {} rows: median error {:.1f} %, worst {:.1f} %", arguments.column,
                         errors.size(), 100 * errors[errors.size() / 2], 100 * errors.back()));
  return table;
}

// --- options of several commands -----------------------------------------------------------------

/// Adds the options for costs, chunk sizes and the JSON file.
void add_costs(CLI::App& app, Arguments& arguments) {
  app.add_option(
      "--link-costs", arguments.link_costs,
      "Link costs, KEY=VALUE,... as kolo-topo prints them; keys left out keep the values "
      "of the measured rows (check) or their defaults");
  app.add_option("--chunk-bytes", arguments.chunk_bytes,
                 "Chunk size in bytes, with suffixes K, M and G [1M; device 32M]");
  app.add_option(
      "--eager-bytes", arguments.eager_bytes,
      "Between nodes, buckets of at most this many bytes start without agreement [256K]");
  app.add_option("--json", arguments.json, "Write the rows to this file");
}

/// Adds the options for ranks, nodes, links and stragglers.
void add_cluster(CLI::App& app, Arguments& arguments) {
  app.add_option("--ranks", arguments.ranks, "Numbers of ranks, comma-separated")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096));
  app.add_option("--nodes", arguments.nodes, "Number of nodes, in place of --ranks")
      ->check(CLI::Range(1, 4096))
      ->default_str("");
  app.add_option("--ranks-per-node", arguments.ranks_per_node,
                 "Ranks of each node; fewer ranks share one node")
      ->check(CLI::Range(1, 4096));
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
      ->check(CLI::NonNegativeNumber)
      ->group("Stragglers");
  app.add_option("--slow-share", stragglers.slow_share, "Share of ranks that are slow")
      ->check(CLI::Range(0.0, 1.0))
      ->group("Stragglers");
  app.add_option("--slow-factor", stragglers.slow_factor,
                 "Computing time of a slow rank, as a multiple of the others'")
      ->check(CLI::Range(1.0, 1e6))
      ->group("Stragglers");
  app.add_option("--seed", stragglers.seed, "Seed that picks delayed and slow ranks")
      ->group("Stragglers");
}

/// Adds the options for algorithm and memory of all-reduces.
void add_buckets(CLI::App& app, Arguments& arguments) {
  app.add_option("--algorithm", arguments.algorithms,
                 "Algorithm, as for kolo-train; repeat the option for several");
  app.add_option("--memory", arguments.memory,
                 "arena (zero copy), user (packed), device or device-user (the same on a GPU)")
      ->check(one_of({"arena", "user", "device", "device-user"}));
}

// --- commands ------------------------------------------------------------------------------------

void add_all_reduce(CLI::App& app, Arguments& arguments) {
  app.add_option("--bytes", arguments.bytes,
                 "Bytes of the bucket, comma-separated, with suffixes K, M and G")
      ->delimiter(',');
  app.add_option("--dtype", arguments.dtype, "Type of the elements");
}

void add_collectives(CLI::App& app, Arguments& arguments) {
  std::vector<std::string> names = collective_kind_names();
  std::erase(names, "all-reduce");  // it has a command of its own
  app.add_option("--collective", arguments.collectives,
                 fmt::format("Collectives, comma-separated: {}", fmt::join(names, ", ")))
      ->delimiter(',')
      ->check(one_of(names))
      ->required();
  app.add_option("--memory", arguments.memory, "user (of the host) or device")
      ->check(one_of({"user", "device"}))
      ->default_str("user");
  app.add_option("--bytes", arguments.bytes, "Bytes of the parts of all ranks, comma-separated")
      ->delimiter(',');
}

void add_step(CLI::App& app, Arguments& arguments) {
  app.add_option("--model", arguments.models, "Model: resnet50 (25 M parameters) or gpt1b (1 B)")
      ->delimiter(',');
  app.add_option("--batch", arguments.batch, "Samples per rank and step [64 images; 8 sequences]")
      ->check(CLI::PositiveNumber)
      ->default_str("");
  app.add_option("--wire", arguments.wire,
                 "Dtype on the wire: float32, float16 or bfloat16 [float32]");
  app.add_option("--compression", arguments.compressions,
                 "Compression, as for kolo-train; host memory only. Repeat the option for several");
  app.add_option(
      "--fusion-bytes", arguments.fusion_bytes,
      "Largest bucket in bytes, with suffixes K, M and G [4M; in device memory the runtime's]");
}

/// Adds the options for the speed of a rank.
void add_speed(CLI::App& app, Arguments& arguments) {
  app.add_option("--tflops", arguments.tflops, "Sustained rate of a rank in Tflop/s")
      ->check(CLI::PositiveNumber);
  app.add_option("--compute-ms", arguments.compute_ms,
                 "Time of forward and backward pass of the whole model over one batch in "
                 "milliseconds, in place of --tflops")
      ->check(CLI::PositiveNumber)
      ->default_str("");
}

void add_check(CLI::App& app, Arguments& arguments) {
  app.add_option("--measured", arguments.measured, "JSON files of kolo-bench all-reduce")
      ->required();
  app.add_option("--column", arguments.column,
                 "Column to compare: median_us, time_us (the mean), min_us or p99_us")
      ->check(one_of({"median_us", "time_us", "min_us", "p99_us"}));
}

int main(int argc, char** argv) {
  CLI::App app("Predicts times on clusters by playing Kolo's own schedules in virtual time.",
               "kolo-sim");
  app.set_version_flag("--version", std::string("kolo-sim ") + kVersion);
  app.require_subcommand(1);
  app.option_defaults()->always_capture_default();
  Arguments arguments;
  CLI::App& all_reduce = *app.add_subcommand("all-reduce", "Time and bandwidth by size");
  CLI::App& collective =
      *app.add_subcommand("collective", "Time of each algorithm for another collective, by size");
  CLI::App& step = *app.add_subcommand("step", "Time of a training step, and efficiency");
  CLI::App& mesh = *app.add_subcommand("mesh", "Memory, idle time and step of a job of kolo-train");
  CLI::App& check = *app.add_subcommand("check", "Predictions beside measurements, with errors");
  add_all_reduce(all_reduce, arguments);
  add_collectives(collective, arguments);
  add_step(step, arguments);
  mesh.allow_extras()->footer("The other options are those of the job; see kolo-train --help.");
  add_check(check, arguments);
  for (CLI::App* command : {&all_reduce, &collective, &step, &mesh}) {
    add_cluster(*command, arguments);
  }
  for (CLI::App* command : {&step, &mesh}) add_speed(*command, arguments);
  for (CLI::App* command : {&all_reduce, &step, &mesh}) add_buckets(*command, arguments);
  for (CLI::App* command : {&all_reduce, &collective, &step, &mesh, &check}) {
    add_costs(*command, arguments);
  }
  return run_program(app, argc, argv, [&] {
    const CLI::App& command = *app.get_subcommands().front();
    if (&command != &check) require_options_read(command, arguments);
    if (!arguments.json.empty()) expect_writable(arguments.json);
    const Table table = all_reduce   ? run_all_reduce(arguments)
                        : collective ? run_collective(arguments)
                        : step       ? run_step(arguments)
                        : mesh       ? run_mesh(arguments, mesh.remaining())
                                     : run_check(arguments);
    table.write(arguments.json);
    return true;
  });
}

}  // namespace
}  // namespace kolo::bench

int main(int argc, char** argv) { return kolo::bench::main(argc, argv); }
