// kolo-bench: measures what Kolo's collectives cost, beside other systems in the same run.

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <thread>

#include "benchmarks/all_reduce_bench.h"
#include "benchmarks/peer_factory.h"
#include "comm/base/log.h"
#include "comm/collective/reduce_kernels.h"
#include "comm/native/device_factory.h"
#include "runtime/option_table.h"
#include "runtime/version.h"

namespace kolo::bench {
namespace {

struct Arguments {
  Options runtime;
  std::vector<std::string> sizes = {"4", "1K", "64K", "1M", "16M", "64M"};
  std::string dtype = "float32", op = "sum", memory = "arena";
  std::vector<std::string> compare;
  std::string json;
  AllReduceOptions all_reduce;
};

/// What --memory names.
struct Memory {
  bool in_arena;
  MemoryKind kind;
};
const std::map<std::string, Memory> kMemories = {{"arena", {true, MemoryKind::kHost}},
                                                 {"user", {false, MemoryKind::kHost}},
                                                 {"device", {true, MemoryKind::kDevice}},
                                                 {"device-user", {false, MemoryKind::kDevice}}};

/// Every runtime option under its flag; `--wire` is the short name of `--wire-dtype`.
void add_runtime_options(CLI::App& app, Options& options) {
  for (const OptionEntry& entry : option_table()) {
    const std::string names = entry.name == "wire_dtype" ? "--wire," + entry.flag() : entry.flag();
    app.add_option_function<std::string>(
           names, [&options, &entry](const std::string& text) { entry.set(options, text); },
           fmt::format("{} [{}]", entry.help, entry.get(options)))
        ->type_name(entry.value)
        ->group("Runtime");
  }
}

void resolve(Arguments& arguments) {
  const auto fail = [](std::string what) {
    throw KoloError({.code = ErrorCode::kConfig, .what = std::move(what)});
  };
  AllReduceOptions& options = arguments.all_reduce;
  const auto dtype = parse_dtype(arguments.dtype);
  const auto op = parse_reduce_op(arguments.op);
  if (!dtype) fail("--dtype: no dtype '" + arguments.dtype + "'");
  if (!op) fail("--op: no operation '" + arguments.op + "'");
  const auto memory = kMemories.find(arguments.memory);
  if (memory == kMemories.end()) fail("--memory takes arena, user, device or device-user");
  options.what = {.dtype = *dtype,
                  .op = *op,
                  .wire = arguments.runtime.wire_dtype,
                  .in_arena = memory->second.in_arena,
                  .memory = memory->second.kind};
  if (options.what.memory == MemoryKind::kDevice && arguments.runtime.device == "cpu") {
    arguments.runtime.device = "cuda";
  }
  for (const std::string& size : arguments.sizes) options.sizes.push_back(parse_bytes(size));
}

void print_header(const Runtime& runtime, const Arguments& arguments) {
  fmt::print("# kolo-bench all-reduce, kolo {}, kernels {}\n", kVersion, kernel_target());
  fmt::print("# {} ranks on {} nodes, {} cores here, memory {}, time of the slowest rank\n",
             runtime.world_size(), runtime.num_nodes(), std::thread::hardware_concurrency(),
             arguments.memory);
  fmt::print(
      "# {:>10} {:>10} {:>8} {:>7} {:>8} {:<26} {:>5} {:>10} {:>10} {:>10} {:>8} {:>8} {:>10} "
      "{:>6}\n",
      "size", "count", "dtype", "op", "system", "algo", "ranks", "time", "min", "p99", "algbw",
      "busbw", "wire", "#wrong");
  fmt::print(
      "# {:>10} {:>10} {:>8} {:>7} {:>8} {:<26} {:>5} {:>10} {:>10} {:>10} {:>8} {:>8} {:>10} "
      "{:>6}\n",
      "(B)", "(elements)", "", "", "", "", "", "(us)", "(us)", "(us)", "(GB/s)", "(GB/s)", "(B)",
      "");
}

void print_row(const Runtime& runtime, const Arguments& arguments, const AllReduceRow& row) {
  fmt::print(
      "  {:>10} {:>10} {:>8} {:>7} {:>8} {:<26} {:>5} {:>10.2f} {:>10.2f} {:>10.2f} {:>8.3f} "
      "{:>8.3f} {:>10} {:>6}\n",
      row.bytes, row.count, arguments.dtype, arguments.op, row.system, row.algorithm,
      runtime.world_size(), row.mean_us, row.min_us, row.p99_us, row.algbw, row.busbw,
      row.wire_bytes ? std::to_string(*row.wire_bytes) : "-", row.wrong);
  std::fflush(stdout);
}

nlohmann::json to_json(const Runtime& runtime, const Arguments& arguments,
                       const AllReduceRow& row) {
  return {
      {"system", row.system},
      {"size", row.bytes},
      {"count", row.count},
      {"dtype", arguments.dtype},
      {"op", arguments.op},
      {"algorithm", row.algorithm},
      {"ranks", runtime.world_size()},
      {"nodes", runtime.num_nodes()},
      {"memory", arguments.memory},
      {"in_place", true},
      {"time_us", row.mean_us},
      {"min_us", row.min_us},
      {"p99_us", row.p99_us},
      {"algbw_GBps", row.algbw},
      {"busbw_GBps", row.busbw},
      {"wire_bytes", row.wire_bytes ? nlohmann::json(*row.wire_bytes) : nlohmann::json(nullptr)},
      {"wrong", row.wrong}};
}

/// Returns whether all sums were right.
bool run_all_reduce(Arguments& arguments) {
  resolve(arguments);
  Peers peers(arguments.compare);
  Runtime runtime = Runtime::from_environment(arguments.runtime);
  std::vector<std::unique_ptr<AllReduceSystem>> systems;
  std::unique_ptr<Device> device;
  if (arguments.all_reduce.what.memory == MemoryKind::kDevice) {
    device = open_device(arguments.runtime.device, runtime.local_rank());
  }
  systems.push_back(make_kolo_system(runtime, device.get()));
  for (auto& peer : peers.take_systems()) systems.push_back(std::move(peer));

  const bool speaks = runtime.rank() == 0;
  if (speaks) print_header(runtime, arguments);
  const auto rows =
      measure_all_reduce(runtime, systems, arguments.all_reduce, [&](const AllReduceRow& row) {
        if (speaks) print_row(runtime, arguments, row);
      });
  systems.clear();
  runtime.close();
  if (speaks && !arguments.json.empty()) {
    nlohmann::json array = nlohmann::json::array();
    for (const AllReduceRow& row : rows) array.push_back(to_json(runtime, arguments, row));
    std::ofstream file(arguments.json);
    file << array.dump(2) << '\n';
    if (!file.flush()) {
      throw KoloError({.code = ErrorCode::kIo, .what = "cannot write " + arguments.json});
    }
  }
  return std::all_of(rows.begin(), rows.end(),
                     [](const AllReduceRow& row) { return row.wrong == 0; });
}

int main(int argc, char** argv) {
  CLI::App app("Measures Kolo's collectives, beside other systems in the same run.", "kolo-bench");
  app.set_version_flag("--version", kVersion);
  app.require_subcommand(1);
  Arguments arguments;
  CLI::App& all_reduce =
      *app.add_subcommand("all-reduce", "All-reduce: time and bandwidth by size");
  all_reduce.add_option("--sizes", arguments.sizes, "Bytes, comma-separated; suffixes K, M, G")
      ->delimiter(',')
      ->capture_default_str();
  all_reduce.add_option("--dtype", arguments.dtype, "Of the elements")->capture_default_str();
  all_reduce.add_option("--op", arguments.op, "sum, average, min, max or prod")
      ->capture_default_str();
  all_reduce
      .add_option("--memory", arguments.memory,
                  "arena (zero copy), user (packed), device or device-user (the same on a GPU)")
      ->capture_default_str();
  all_reduce.add_option("--compare", arguments.compare, "Systems to measure beside Kolo: mpi")
      ->delimiter(',');
  all_reduce
      .add_option("--iterations", arguments.all_reduce.iterations,
                  "Per size and system; 0: by size")
      ->capture_default_str();
  all_reduce.add_option("--warmup", arguments.all_reduce.warmup, "Iterations before each round")
      ->capture_default_str();
  all_reduce.add_option("--rounds", arguments.all_reduce.rounds, "Turns of each system")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  all_reduce.add_option("--json", arguments.json, "Write the rows to this file");
  add_runtime_options(all_reduce, arguments.runtime);
  try {
    app.parse(argc, argv);
    return run_all_reduce(arguments) ? 0 : exit_status(ErrorCode::kInternal);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : exit_status(ErrorCode::kUsage);
  } catch (const KoloError& e) {
    log::error(e.what());
    return exit_status(e.error().code);
  }
}

}  // namespace
}  // namespace kolo::bench

int main(int argc, char** argv) { return kolo::bench::main(argc, argv); }
