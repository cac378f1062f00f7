#include "benchmarks/collective/collective_command.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "benchmarks/collective/kolo_system.h"
#include "benchmarks/common/json_file.h"
#include "benchmarks/peers/peer_factory.h"
#include "comm/base/error.h"
#include "comm/base/reduction.h"
#include "comm/kernels/reduce_kernels.h"
#include "runtime/api/version.h"
#include "runtime/tools/command_line.h"

namespace kolo::bench {
namespace {

[[noreturn]] void fail(std::string what) {
  throw KoloError({.code = ErrorCode::kConfig, .what = std::move(what)});
}

Home parse_home(const std::string& text) {
  for (Home home : kAllHomes) {
    if (text == to_string(home)) return home;
  }
  fail("--memory takes arena, user, device and device-user, not '" + text + "'");
}

/// Options of the runtime that concern the chunks of all-reduces.
constexpr std::array<std::string_view, 3> kOfAllReduce = {"chunk_bytes", "device_chunk_bytes",
                                                          "network_window"};

/// "an all-reduce", "a broadcast", ...
std::string subject(Verb verb) {
  if (verb == Verb::kSparseRows) return "an all-reduce of rows of a table";
  const std::string_view name = to_string(verb);
  return fmt::format("{} {}", name.starts_with('a') ? "an" : "a", name);
}

/// The flag that adds the place in which a collective is not measured unless asked.
const char* other_place_name(Verb verb) {
  return traits_of(verb).in_place ? "--out-of-place" : "--in-place";
}

const char* sizes_help(Verb verb) {
  if (verb == Verb::kSparseRows) {
    return "Bytes of the table, comma-separated, with suffixes K, M and G; rounded down to whole "
           "rows";
  }
  return has_parts(verb)
             ? "Bytes of the parts of all ranks, comma-separated, with suffixes K, M and G; "
               "rounded down so that parts are equal"
             : "Bytes, comma-separated, with suffixes K, M and G; rounded down to whole elements";
}

std::string dtype_help(Verb verb) {
  const std::string numbers =
      "Type of the elements: float32, float64, float16, bfloat16, int32, int64, uint8";
  if (verb == Verb::kSparseRows) return numbers + " or int8";
  return numbers + (reduces(verb) ? ", int8, bool, complex64 or complex128"
                                  : ", int8, bool, complex64, complex128, float8_e4m3 or "
                                    "float8_e5m2");
}

template <typename Value>
nlohmann::json or_null(const std::optional<Value>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

template <typename Value>
std::string or_dash(const std::optional<Value>& value) {
  return value ? fmt::to_string(*value) : "-";
}

/// Empty where elements are only moved.
std::optional<std::string_view> op_of(const CollectiveCase& what) {
  return reduces(what.verb) ? std::optional(to_string(what.op)) : std::nullopt;
}

constexpr const char* kLine =
    "{} {:>10} {:>10} {:>8} {:>7} {:>9} {:>11} {:>5} {:<26} {:>5} {:>10} {:>10} {:>10} {:>10} "
    "{:>8} {:>8} {:>10} {:>6}\n";

/// Notes that a reader needs to compare the rows of these systems.
std::vector<std::string> notes(const Runtime& runtime, const CollectiveOptions& options,
                               const std::vector<std::string>& peers) {
  const auto compares = [&](std::string_view name) { return std::ranges::count(peers, name) > 0; };
  const bool one_node = runtime.num_nodes() == 1;
  const Verb verb = options.what.verb;
  const bool has_gradients = verb == Verb::kAllReduce && fits_gradients(options.what);
  std::vector<std::string> all;
  if (traits_of(verb).has_root) all.emplace_back("rank 0 is the root");
  if (verb == Verb::kSendRecv) {
    all.emplace_back(
        "ranks r and n-1-r send to each other in turns; time: there and back; busbw: one way");
  }
  if (verb == Verb::kSparseRows) {
    all.emplace_back(
        "size and bandwidths: of the table, with other rows at each call; peers: an all-reduce of "
        "the table; algo: what was exchanged");
  }
  if (verb == Verb::kAllReduce && !has_gradients) {
    all.emplace_back("kolo: calls in the caller's memory; gradients are of other dtypes and sums");
  }
  if (std::ranges::any_of(options.homes, in_arena)) {
    all.emplace_back(has_gradients ? "arena: ranks of a node write into each other's gradients; "
                                     "mpi and gloo give each rank private buffers, as kolo does "
                                     "with memory user"
                                   : "arena: ranks of a node read each other's buffers; peers' are "
                                     "private");
  }
  if (compares("mpi") && !one_node) {
    all.emplace_back(
        "mpi, han, copied: Open MPI's hierarchical component would crash in place (4.1.4), so its "
        "contribution is copied first, within the time");
  }
  if (compares("gloo") && one_node) {
    all.emplace_back("gloo: TCP over the loopback; it has no shared memory");
  }
  if (compares("streaming")) {
    all.emplace_back(
        "streaming, from 64 KiB on: the copies and additions that no rank can avoid, in memory "
        "that all have mapped, without flags; a reference, no lower bound");
  }
  if (compares("limit")) {
    all.emplace_back(
        "limit, from 64 KiB on: TCP streams from node to node of the least bytes that the busiest "
        "one must send or receive; a lower bound where links and not processors take the time");
  }
  if (options.together) all.emplace_back("together: a barrier before each call");
  all.emplace_back(options.fresh
                       ? "contributions are written before each call, which begins with a barrier"
                       : "untouched: contributions of earlier calls, which peers may have in "
                         "their caches");
  all.emplace_back("p99: of rows with at least 100 iterations");
  return all;
}

void print_header(const Runtime& runtime, const CollectiveOptions& options,
                  const std::vector<std::string>& peers) {
  fmt::print("# kolo-bench {}, kolo {}, kernels {}\n", to_string(options.what.verb), kVersion,
             kernel_target());
  fmt::print(
      "# {} ranks on {} nodes, {} cores here; time: mean of a loop; others: slowest rank of each "
      "iteration\n",
      runtime.world_size(), runtime.num_nodes(), std::thread::hardware_concurrency());
  for (const std::string& note : notes(runtime, options, peers)) fmt::print("# {}\n", note);
  fmt::print(fmt::runtime(kLine), "#", "size", "count", "dtype", "op", "system", "memory", "place",
             "algo", "ranks", "time", "median", "min", "p99", "algbw", "busbw", "wire", "#wrong");
  fmt::print(fmt::runtime(kLine), "#", "(B)", "(elements)", "", "", "", "", "", "", "", "(us)",
             "(us)", "(us)", "(us)", "(GB/s)", "(GB/s)", "(B)", "");
}

void print_row(const Runtime& runtime, const CollectiveRow& row) {
  const auto two_digits = [](double us) { return fmt::format("{:.2f}", us); };
  const auto three_digits = [](double rate) { return fmt::format("{:.3f}", rate); };
  const Summary& time = row.slowest_us;
  fmt::print(fmt::runtime(kLine), " ", row.what.bytes, row.what.count(), to_string(row.what.dtype),
             or_dash(op_of(row.what)), row.system, to_string(row.what.home),
             row.what.in_place ? "in" : "out", row.algorithm, runtime.world_size(),
             two_digits(row.mean_us), two_digits(time.median), two_digits(time.min),
             time.p99 ? two_digits(*time.p99) : "-", three_digits(row.algbw),
             three_digits(row.busbw), or_dash(row.wire_bytes), or_dash(row.wrong));
  std::fflush(stdout);
}

nlohmann::json to_json(const Runtime& runtime, const std::string& label, const CollectiveRow& row) {
  nlohmann::json json = {{"collective", to_string(row.what.verb)},
                         {"system", row.system},
                         {"library", or_null(row.library)},
                         {"size", row.what.bytes},
                         {"count", row.what.count()},
                         {"dtype", to_string(row.what.dtype)},
                         {"op", or_null(op_of(row.what))},
                         {"wire_dtype", to_string(row.what.wire.value_or(row.what.dtype))},
                         {"algorithm", row.algorithm},
                         {"candidates", row.candidates},
                         {"ranks", runtime.world_size()},
                         {"nodes", runtime.num_nodes()},
                         {"memory", to_string(row.what.home)},
                         {"in_place", row.what.in_place},
                         {"iterations", row.iterations},
                         {"together", row.together},
                         {"fresh", row.fresh},
                         {"time_us", row.mean_us},
                         {"median_us", row.slowest_us.median},
                         {"min_us", row.slowest_us.min},
                         {"p99_us", or_null(row.slowest_us.p99)},
                         {"algbw_GBps", row.algbw},
                         {"busbw_GBps", row.busbw},
                         {"wire_bytes", or_null(row.wire_bytes)},
                         {"wrong", or_null(row.wrong)},
                         {"link_costs", runtime.link_costs()},
                         {"label", label}};
  if (row.what.verb == Verb::kSparseRows) {
    json["width"] = row.what.width;
    json["density"] = row.what.density;
  }
  return json;
}

}  // namespace

CollectiveCommand::CollectiveCommand(CLI::App& app, Verb verb)
    : verb_(verb),
      command_(
          *app.add_subcommand(std::string(to_string(verb)),
                              fmt::format("Time and bandwidth of {} by size", subject(verb)))) {
  const bool sums_gradients = verb == Verb::kAllReduce;
  command_.add_option("--sizes", sizes_, sizes_help(verb))->delimiter(',')->capture_default_str();
  command_.add_option("--dtype", dtype_, dtype_help(verb))->capture_default_str();
  if (verb == Verb::kSparseRows) {
    add_sparse_rows_options();
  } else if (reduces(verb)) {
    command_
        .add_option("--op", op_,
                    "Reduction, which must take the dtype: sum, average, min, max, prod, bit_and, "
                    "bit_or, bit_xor or premul_sum")
        ->capture_default_str();
  }
  command_
      .add_option(
          "--compare", compare_,
          fmt::format("Systems to measure beside Kolo: {}. A row of a system is the best of its "
                      "algorithms; mpi's are Open MPI's, including its hierarchical component han "
                      "(whose contribution is copied first where it would crash in place, in "
                      "4.1.4){}",
                      fmt::join(Peers::known(verb), ", "),
                      traits_of(verb).has_references
                          ? "; limit, from 64 KiB on, is a lower bound between nodes; "
                            "streaming is a reference inside a node"
                          : ""))
      ->delimiter(',');
  if (!sums_gradients) homes_ = {std::string(to_string(Home::kUser))};
  if (sums_gradients) {
    add_gradient_memory();
  } else if (verb != Verb::kSparseRows) {
    add_call_memory();
  }
  add_other_place();
  command_
      .add_option("--iterations", options_.iterations,
                  fmt::format("Timed iterations of a row; 0: by size, within --seconds, and at "
                              "least {}",
                              kLeastIterations))
      ->check(CLI::Range(0, 1'000'000'000))
      ->capture_default_str();
  command_
      .add_option("--seconds", options_.seconds,
                  fmt::format("Seconds for the timed iterations of a row, which are at least {}",
                              kLeastIterations))
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command_
      .add_option("--warmup", options_.warmup,
                  "Largest number of untimed iterations before each round")
      ->check(CLI::Range(0, 1'000'000'000))
      ->capture_default_str();
  command_
      .add_option("--rounds", options_.rounds,
                  "Rounds within a size; each measures every system in turn")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command_.add_flag("--fresh,!--untouched", options_.fresh,
                    "Contributions written anew before each call, outside the time, and a barrier "
                    "(the default): as in a program, they are in the caches of the ranks that "
                    "wrote them. --untouched leaves them as they are: peers may still have those "
                    "of the last call in their caches");
  command_.add_flag("--together", options_.together,
                    "A barrier before each call, between nodes after a rest, so that ranks begin "
                    "it together; without it those that wait for nobody, such as the root of a "
                    "broadcast, run ahead");
  command_.add_option("--json", json_, "Write the rows to this file");
  command_.add_option("--label", label_, "Text that every row of the JSON carries");
  add_runtime_options(command_, runtime_, [sums_gradients](std::string_view name) {
    // Sums are checked element by element, so gradients are sent dense.
    if (name == "compression") return false;
    if (sums_gradients) return true;
    return !is_of_gradients(name) && std::ranges::find(kOfAllReduce, name) == kOfAllReduce.end();
  });
}

void CollectiveCommand::add_gradient_memory() {
  command_
      .add_option(
          "--memory", homes_,
          "Where gradients live, comma-separated: arena (Kolo's, zero copy: ranks of a node "
          "write into each other's gradients), user (the caller's, private), device and "
          "device-user (the same on a GPU). Peers are measured in the caller's memory")
      ->delimiter(',')
      ->capture_default_str();
}

void CollectiveCommand::add_other_place() {
  CLI::Option* const option = command_.add_flag(
      other_place_name(verb_), other_place_,
      traits_of(verb_).in_place
          ? "Also measure with contribution and result in separate buffers"
          : "Also measure with contribution and result in one buffer, as peers do it");
  // It is refused with the reason.
  if (!traits_of(verb_).has_other_place) option->group("");
}

void CollectiveCommand::add_call_memory() {
  std::vector<std::string_view> known{to_string(Home::kUser), to_string(Home::kDeviceUser)};
  if (verb_ != Verb::kSendRecv) known.insert(known.begin() + 1, to_string(Home::kArena));
  command_
      .add_option(
          "--memory", homes_,
          fmt::format("Where buffers lie, comma-separated: user (the caller's, private){} and "
                      "device-user (the caller's on a GPU). Peers are measured in the caller's "
                      "memory",
                      verb_ == Verb::kSendRecv
                          ? ""
                          : ", arena (allocated by Kolo: ranks of a node read each other's)"))
      ->delimiter(',')
      ->check(CLI::IsMember(known))
      ->capture_default_str();
}

void CollectiveCommand::add_sparse_rows_options() {
  const std::map<std::string, RowForm> forms = {
      {"auto", RowForm::kAuto}, {"rows", RowForm::kRows}, {"table", RowForm::kTable}};
  CollectiveCase& what = options_.what;
  command_.add_option("--width", what.width, "Elements of a row of the table")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command_
      .add_option("--density", what.density,
                  "Rows that each rank passes, relative to those of the table; drawn by Zipf's "
                  "law, so that low ones come often")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  command_
      .add_option("--result", what.rows_result,
                  "Form of the result: rows, table or auto, that of the exchange")
      ->transform(CLI::CheckedTransformer(forms))
      ->default_str("auto");
  command_
      .add_option("--exchange", what.rows_exchange,
                  "What travels: rows, table or auto, by predicted cost")
      ->transform(CLI::CheckedTransformer(forms))
      ->default_str("auto");
}

void CollectiveCommand::resolve() {
  require_read(command_, {{"--seconds", options_.iterations == 0, "calls without --iterations"},
                          {"--label", !json_.empty(), "--json"}});
  runtime_ = options_from_environment(std::move(runtime_));
  const auto dtype = parse_dtype(dtype_);
  const auto op = parse_reduce_op(op_);
  if (!dtype) fail("--dtype: no dtype '" + dtype_ + "'");
  if (!op) fail("--op: no operation '" + op_ + "'");
  if (reduces(verb_) && !takes(*op, *dtype))
    fail("--op " + op_ + " does not take --dtype " + dtype_);
  options_.what.verb = verb_;
  options_.what.dtype = *dtype;
  options_.what.op = *op;
  options_.homes.clear();
  for (const std::string& home : homes_) options_.homes.push_back(parse_home(home));
  if (verb_ == Verb::kAllReduce) {
    options_.what.wire = runtime_.wire_dtype;
    if (!fits_gradients(options_.what)) measure_calls();
  }
  const VerbTraits& traits = traits_of(verb_);
  if (other_place_ && !traits.has_other_place) {
    fail(fmt::format("{}: {} is measured {} only", other_place_name(verb_), subject(verb_),
                     traits.in_place ? "in place" : "out of place"));
  }
  options_.places = {traits.in_place};
  if (other_place_) options_.places.push_back(!traits.in_place);
  options_.sizes = parse_sizes("--sizes", sizes_);
}

void CollectiveCommand::measure_calls() {
  const std::string what = op_ + " of " + dtype_;
  if (options_.what.wire) fail("--wire goes with gradients, which do not take " + what);
  const bool is_elsewhere =
      std::ranges::count(options_.homes, Home::kUser) == 0 || options_.homes.size() > 1;
  if (command_.count("--memory") > 0 && is_elsewhere) {
    fail("--memory, but for user, holds gradients, which do not take " + what);
  }
  require_runtime_read(
      command_, [](std::string_view name) { return !is_of_gradients(name); },
      "gradients, which do not take " + what);
  options_.homes = {Home::kUser};
}

bool CollectiveCommand::run() {
  resolve();
  const bool on_device = std::any_of(options_.homes.begin(), options_.homes.end(), [](Home home) {
    return memory_kind(home) == MemoryKind::kDevice;
  });
  if (on_device && runtime_.device == "cpu") runtime_.device = "cuda";
  const Peers peers(compare_, verb_);
  Runtime runtime = Runtime::from_environment(runtime_);
  std::vector<std::unique_ptr<CollectiveSystem>> systems;
  systems.push_back(make_kolo_system(runtime));
  for (auto& peer : peers.connect(runtime)) systems.push_back(std::move(peer));

  const bool speaks = runtime.rank() == 0;
  expect_output(runtime, json_);
  if (speaks) print_header(runtime, options_, compare_);
  nlohmann::json json = nlohmann::json::array();
  bool right = true;
  measure_collective(runtime, systems, options_, [&](const CollectiveRow& row) {
    right &= row.wrong.value_or(0) == 0;
    if (!speaks) return;
    print_row(runtime, row);
    json.push_back(to_json(runtime, label_, row));
  });
  systems.clear();
  runtime.close();
  if (speaks) write_json(json_, json);
  return right;
}

}  // namespace kolo::bench
