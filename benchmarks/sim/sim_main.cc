// kolo-sim: predicts all-reduce and step times on simulated clusters.

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>

#include "benchmarks/common/json_file.h"
#include "benchmarks/sim/sim_arguments.h"
#include "benchmarks/sim/sim_check.h"
#include "benchmarks/sim/sim_collective.h"
#include "benchmarks/sim/sim_step.h"
#include "comm/base/error.h"
#include "comm/base/output_file.h"
#include "runtime/api/version.h"
#include "runtime/tools/command_line.h"
#include "topology/link_costs.h"

namespace kolo::bench {
namespace {

/// Share of TCP payload in the bits of an Ethernet with frames of 1500 bytes.
constexpr double kPayloadShare = 0.957;

const std::map<std::string, std::pair<Placement, MemoryKind>> kMemories = {
    {"arena", {Placement::kInPlace, MemoryKind::kHost}},
    {"user", {Placement::kUser, MemoryKind::kHost}},
    {"device", {Placement::kInPlace, MemoryKind::kDevice}},
    {"device-user", {Placement::kStaged, MemoryKind::kDevice}}};

[[noreturn]] void fail(std::string what) {
  throw KoloError({.code = ErrorCode::kConfig, .what = std::move(what)});
}

DType dtype_of(const std::string& name) {
  const auto dtype = parse_dtype(name);
  if (!dtype) throw UsageError("no dtype '" + name + "'");
  return *dtype;
}

std::size_t parse_size(std::string_view flag, const std::string& text) {
  return parse_sizes(flag, {text}).front();
}

/// One machine of the sweep.
struct Point {
  int ranks;
  double gbit;  // 0: as the link costs say
  std::string algorithm;
};

/// All combinations, ranks last.
std::vector<Point> points(const Arguments& arguments) {
  std::vector<int> ranks = arguments.ranks;
  if (arguments.nodes > 0) ranks = {arguments.nodes * arguments.ranks_per_node};
  std::vector<Point> result;
  for (double gbit : arguments.gbit.empty() ? std::vector<double>{0} : arguments.gbit) {
    for (const std::string& algorithm : arguments.algorithms) {
      for (int count : ranks) result.push_back({count, gbit, algorithm});
    }
  }
  return result;
}

/// The options of a measured row, unless the command line overrides them.
LinkCosts link_costs(const Arguments& arguments, const std::string& measured) {
  try {
    return parse_link_costs(arguments.link_costs, parse_link_costs(measured));
  } catch (const std::invalid_argument& e) {
    fail(e.what());
  }
}

ClusterSpec cluster_spec(const Arguments& arguments, const Point& point) {
  ClusterSpec spec = arguments.cluster;
  spec.ranks_per_node = std::min(arguments.ranks_per_node, point.ranks);
  if (spec.ranks_per_node < 1 || point.ranks % spec.ranks_per_node != 0) {
    fail(fmt::format("{} ranks do not fill nodes of {}", point.ranks, arguments.ranks_per_node));
  }
  spec.nodes = point.ranks / spec.ranks_per_node;
  spec.costs.links = link_costs(arguments, "");
  if (point.gbit > 0) {
    const double bytes_per_us = point.gbit * 125 * kPayloadShare;
    spec.costs.links.network.bytes_per_us = bytes_per_us;
    spec.costs.links.native_network.bytes_per_us = bytes_per_us;
    spec.costs.links.node_rates.clear();
  }
  spec.compile.algorithm = point.algorithm;
  if (!arguments.chunk_bytes.empty()) {
    spec.compile.chunk_bytes = parse_size("--chunk-bytes", arguments.chunk_bytes);
    spec.compile.device_chunk_bytes = spec.compile.chunk_bytes;
  }
  if (!arguments.eager_bytes.empty()) {
    spec.compile.eager_bytes = parse_size("--eager-bytes", arguments.eager_bytes);
  }
  const auto memory = kMemories.find(arguments.memory);
  if (memory == kMemories.end()) fail("--memory takes arena, user, device or device-user");
  std::tie(spec.placement, spec.memory) = memory->second;
  return spec;
}

/// Fields common to the rows of both predictions.
nlohmann::json describe(const Cluster& cluster, const Arguments& arguments) {
  const ClusterSpec& spec = cluster.spec();
  return {{"system", "sim"},
          {"ranks", cluster.grid().world_size()},
          {"nodes", spec.nodes},
          {"memory", arguments.memory},
          {"network_gbit", spec.costs.links.network.bytes_per_us / 125 / kPayloadShare},
          {"link_costs", to_string(spec.costs.links)}};
}

/// Errors: UsageError for an option that was given and that nothing in this call reads.
void require_options_read(const CLI::App& command, const Arguments& arguments) {
  const auto has = [&](const char* flag) { return command.count(flag) > 0; };
  require_read(command, {{"--ranks", !has("--nodes"), "calls without --nodes"},
                         {"--slow-share", has("--slow-factor"), "--slow-factor"},
                         {"--slow-factor", has("--slow-share"), "--slow-share"},
                         {"--seed", has("--late-us") || has("--slow-share"),
                          "--late-us, or --slow-share with --slow-factor"}});
  if (command.get_name() != "step") return;
  const bool is_given = has("--compute-ms");
  const bool is_dense = std::ranges::all_of(arguments.compressions, [](const std::string& text) {
    return text == "none" || text == "fp16" || text == "bf16" || text == "auto";
  });
  require_read(command, {{"--batch", !is_given, "calls without --compute-ms"},
                         {"--tflops", !is_given, "calls without --compute-ms"},
                         {"--compression", is_dense || !arguments.memory.starts_with("device"),
                          "--memory arena and user, but for none, fp16, bf16 and auto"}});
}

void run_all_reduce(const Arguments& arguments) {
  const DType dtype = dtype_of(arguments.dtype);
  const std::vector<std::size_t> sizes = parse_sizes("--bytes", arguments.bytes);
  fmt::print("# kolo-sim all-reduce, kolo {}: predicted, nothing was measured\n", kVersion);
  fmt::print("# {:>10} {:>6} {:>6} {:>8} {:<36} {:>12} {:>8} {:>8}\n", "size(B)", "ranks", "nodes",
             "Gbit/s", "algo", "time(us)", "algbw", "busbw");
  nlohmann::json rows = nlohmann::json::array();
  for (const Point& point : points(arguments)) {
    Cluster cluster(cluster_spec(arguments, point));
    for (const std::size_t bytes : sizes) {
      const BucketLayout layout = cluster.layout(bytes / size_of(dtype), dtype);
      const double us = cluster.run({layout}, {0})[0];
      const double n = point.ranks;
      const double algbw = static_cast<double>(bytes) / us / 1000;
      nlohmann::json row = describe(cluster, arguments);
      row.update({{"size", bytes},
                  {"count", bytes / size_of(dtype)},
                  {"dtype", arguments.dtype},
                  {"algorithm", cluster.algorithm(layout).name()},
                  {"time_us", us},
                  {"algbw_GBps", algbw},
                  {"busbw_GBps", algbw * 2 * (n - 1) / n}});
      fmt::print("  {:>10} {:>6} {:>6} {:>8.4g} {:<36} {:>12.2f} {:>8.3f} {:>8.3f}\n", bytes,
                 point.ranks, cluster.spec().nodes, row["network_gbit"].get<double>(),
                 row["algorithm"].get<std::string>(), us, algbw, algbw * 2 * (n - 1) / n);
      std::fflush(stdout);
      rows.push_back(std::move(row));
    }
  }
  write_json(arguments.json, rows);
}

void run_collective(const Arguments& arguments) {
  fmt::print("# kolo-sim collective, kolo {}: predicted, nothing was measured\n", kVersion);
  fmt::print("# {:>10} {:>6} {:>6} {:>8} {:<15} {:<10} {:>7} {:>12} {:>12}\n", "size(B)", "ranks",
             "nodes", "Gbit/s", "collective", "algo", "choice", "price(us)", "time(us)");
  nlohmann::json rows = nlohmann::json::array();
  for (const Point& point : points(arguments)) {
    Cluster cluster(cluster_spec(arguments, point));
    for (const std::string& collective : arguments.collectives) {
      for (const std::size_t bytes : parse_sizes("--bytes", arguments.bytes)) {
        for (const CollectiveTime& each : collective_times(cluster, collective, bytes)) {
          nlohmann::json row = describe(cluster, arguments);
          row.update({{"size", bytes},
                      {"collective", collective},
                      {"algorithm", each.algorithm},
                      {"is_choice", each.is_choice},
                      {"price_us", each.predicted_us},
                      {"time_us", each.simulated_us}});
          fmt::print("  {:>10} {:>6} {:>6} {:>8.4g} {:<15} {:<10} {:>7} {:>12.2f} {:>12.2f}\n",
                     bytes, point.ranks, cluster.spec().nodes, row["network_gbit"].get<double>(),
                     collective, each.algorithm, each.is_choice ? "*" : "", each.predicted_us,
                     each.simulated_us);
          rows.push_back(std::move(row));
        }
      }
    }
  }
  write_json(arguments.json, rows);
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

std::vector<std::string> texts_of(const std::vector<CompressionDecision>& decisions) {
  std::vector<std::string> texts;
  for (const CompressionDecision& decision : decisions) texts.push_back(to_string(decision));
  return texts;
}

nlohmann::json predicted_step(const Arguments& arguments, const Point& point,
                              const StepSpec& spec) {
  Cluster cluster(cluster_spec(arguments, point));
  const StepTimes times = predict_step(cluster, spec);
  nlohmann::json row = describe(cluster, arguments);
  row.update({{"model", spec.model.name},
              {"parameters", spec.model.parameters()},
              {"algorithm", point.algorithm},
              {"wire", arguments.wire.empty() ? "float32" : arguments.wire},
              {"compression", spec.compression},
              {"compression_decisions", texts_of(times.decisions)},
              {"buckets", times.buckets},
              {"sparse_buckets", times.sparse_buckets},
              {"wire_bytes", times.wire_bytes},
              {"compute_ms", times.compute_us / 1000},
              {"step_ms", times.step_us / 1000},
              {"exposed_comm_ms", times.exposed_us / 1000},
              {"efficiency", times.efficiency()}});
  fmt::print(
      "  {:<10} {:>6} {:>6} {:>8.4g} {:<30} {:<14} {:>8} {:>12.2f} {:>12.2f} {:>12.2f} {:>11.4f}\n",
      spec.model.name, point.ranks, cluster.spec().nodes, row["network_gbit"].get<double>(),
      point.algorithm, spec.compression, times.buckets, times.compute_us / 1000,
      times.step_us / 1000, times.exposed_us / 1000, times.efficiency());
  for (const std::string& text : texts_of(times.decisions)) fmt::print("#   {}\n", text);
  std::fflush(stdout);
  return row;
}

void run_step(const Arguments& arguments) {
  fmt::print("# kolo-sim step, kolo {}: predicted, nothing was measured\n", kVersion);
  fmt::print("# {:<10} {:>6} {:>6} {:>8} {:<30} {:<14} {:>8} {:>12} {:>12} {:>12} {:>11}\n",
             "model", "ranks", "nodes", "Gbit/s", "algo", "compression", "buckets", "compute(ms)",
             "step(ms)", "exposed(ms)", "efficiency");
  nlohmann::json rows = nlohmann::json::array();
  for (const std::string& model : arguments.models) {
    for (const std::string& compression : arguments.compressions) {
      const StepSpec spec = step_spec(arguments, model, compression);
      for (const Point& point : points(arguments)) {
        rows.push_back(predicted_step(arguments, point, spec));
      }
    }
  }
  write_json(arguments.json, rows);
}

/// Rows of several files, with the name of the file of each.
struct Measured {
  std::vector<std::string> files;
  std::vector<MeasuredRow> rows;
};

Measured read_all(const Arguments& arguments) {
  Measured all;
  for (const std::string& file : arguments.measured) {
    for (MeasuredRow& row : read_measured(file, arguments.column)) {
      all.files.push_back(file);
      all.rows.push_back(std::move(row));
    }
  }
  return all;
}

void print_errors(std::vector<double> errors) {
  std::sort(errors.begin(), errors.end());
  fmt::print("# {} rows: median error {:.1f} %, worst {:.1f} %\n", errors.size(),
             100 * errors[errors.size() / 2], 100 * errors.back());
}

void run_check(const Arguments& arguments) {
  const ClusterSpec spec = cluster_spec(arguments, {1, 0, "auto"});
  const Measured all = read_all(arguments);
  CompileOptions compile = spec.compile;
  if (arguments.chunk_bytes.empty()) compile.chunk_bytes = 0;
  fmt::print("# kolo-sim check of {}, kolo {}\n", arguments.column, kVersion);
  fmt::print("# {:>10} {:>6} {:>6} {:>8} {:<28} {:>14} {:>14} {:>9}\n", "size(B)", "ranks", "nodes",
             "Gbit/s", "algo", "predicted(us)", "measured(us)", "error(%)");
  nlohmann::json json = nlohmann::json::array();
  std::vector<double> errors;
  for (std::size_t i = 0; i < all.rows.size(); ++i) {
    const MeasuredRow& row = all.rows[i];
    MachineCosts costs = spec.costs;
    costs.links = link_costs(arguments, row.link_costs);
    const double predicted_us = predict_us(row, costs, compile);
    const double error = predicted_us / row.time_us - 1;
    errors.push_back(std::abs(error));
    fmt::print("  {:>10} {:>6} {:>6} {:>8.3g} {:<28} {:>14.2f} {:>14.2f} {:>+9.1f}\n", row.bytes,
               row.ranks, row.nodes, costs.links.network.bytes_per_us / 125 / kPayloadShare,
               row.algorithm, predicted_us, row.time_us, 100 * error);
    json.push_back({{"file", all.files[i]},
                    {"size", row.bytes},
                    {"ranks", row.ranks},
                    {"nodes", row.nodes},
                    {"algorithm", row.algorithm},
                    {"predicted_us", predicted_us},
                    {"measured_us", row.time_us},
                    {"error", error},
                    {"link_costs", to_string(costs.links)}});
  }
  print_errors(std::move(errors));
  write_json(arguments.json, json);
}

int main(int argc, char** argv) {
  CLI::App app("Predicts times on clusters by playing Kolo's own schedules in virtual time.",
               "kolo-sim");
  app.set_version_flag("--version", std::string("kolo-sim ") + kVersion);
  app.require_subcommand(1);
  Arguments arguments;

  CLI::App& all_reduce = *app.add_subcommand("all-reduce", "Time and bandwidth by size");
  all_reduce
      .add_option("--bytes", arguments.bytes,
                  "Bytes of the bucket, comma-separated, with suffixes K, M and G")
      ->delimiter(',')
      ->capture_default_str();
  all_reduce.add_option("--dtype", arguments.dtype, "Type of the elements")->capture_default_str();

  CLI::App& collective =
      *app.add_subcommand("collective", "Time of each algorithm for another collective, by size");
  add_collectives(collective, arguments);

  CLI::App& step = *app.add_subcommand("step", "Time of a training step, and efficiency");
  step.add_option("--model", arguments.models, "Model: resnet50 (25 M parameters) or gpt1b (1 B)")
      ->delimiter(',')
      ->capture_default_str();
  step.add_option("--batch", arguments.batch, "Samples per rank and step [64 images; 8 sequences]")
      ->check(CLI::PositiveNumber);
  step.add_option("--tflops", arguments.tflops, "Sustained rate of a rank in Tflop/s")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  step.add_option(
          "--compute-ms", arguments.compute_ms,
          "Time of forward and backward pass in milliseconds, in place of --tflops and --batch")
      ->check(CLI::PositiveNumber);
  step.add_option("--wire", arguments.wire,
                  "Dtype on the wire: float32, float16 or bfloat16 [float32]");
  step.add_option("--compression", arguments.compressions,
                  "Compression, as for kolo-train: none, fp16, bf16, topk(DENSITY,...), auto, or "
                  "rules by name; host memory only. Repeat the option for several")
      ->capture_default_str();
  step.add_option(
      "--fusion-bytes", arguments.fusion_bytes,
      "Largest bucket in bytes, with suffixes K, M and G [4M; in device memory the runtime's]");

  CLI::App& check = *app.add_subcommand("check", "Predictions beside measurements, with errors");
  check.add_option("--measured", arguments.measured, "JSON files of kolo-bench all-reduce")
      ->required();
  check
      .add_option("--column", arguments.column,
                  "Column to compare: median_us, time_us (the mean), min_us or p99_us")
      ->check(one_of({"median_us", "time_us", "min_us", "p99_us"}))
      ->capture_default_str();

  for (CLI::App* command : {&all_reduce, &collective, &step}) add_cluster(*command, arguments);
  for (CLI::App* command : {&all_reduce, &step}) add_buckets(*command, arguments);
  for (CLI::App* command : {&all_reduce, &collective, &step, &check})
    add_costs(*command, arguments);
  return run_program(app, argc, argv, [&] {
    for (const CLI::App* command : {&all_reduce, &collective, &step}) {
      if (*command) require_options_read(*command, arguments);
    }
    if (!arguments.json.empty()) expect_writable(arguments.json);
    if (all_reduce) run_all_reduce(arguments);
    if (collective) run_collective(arguments);
    if (step) run_step(arguments);
    if (check) run_check(arguments);
    return true;
  });
}

}  // namespace
}  // namespace kolo::bench

int main(int argc, char** argv) { return kolo::bench::main(argc, argv); }
