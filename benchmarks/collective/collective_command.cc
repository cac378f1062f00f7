#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "benchmarks/collective/collective_bench.h"
#include "benchmarks/common/commands.h"
#include "benchmarks/common/table.h"
#include "benchmarks/peers/peers.h"
#include "comm/base/reduction.h"
#include "comm/kernels/reduce_kernels.h"
#include "runtime/options/version.h"
#include "runtime/tools/command_line.h"

namespace kolo::bench {
namespace {

Home parse_home(const std::string& text) {
  for (Home home : kAllHomes) {
    if (text == to_string(home)) return home;
  }
  refuse("--memory takes arena, user, device and device-user, not '" + text + "'");
}

/// Runtime options that affect the chunks of all-reduces.
constexpr std::array<std::string_view, 3> kOfAllReduce = {"chunk_bytes", "device_chunk_bytes",
                                                          "network_window"};

/// Returns the verb with its article: "an all-reduce", "a broadcast", ...
std::string subject(Verb verb) {
  if (verb == Verb::kSparseRows) return "an all-reduce of rows of a table";
  const std::string_view name = to_string(verb);
  return fmt::format("{} {}", name.starts_with('a') ? "an" : "a", name);
}

/// Returns the flag that also measures the placement that is not the default.
const char* other_place_name(Verb verb) {
  return traits_of(verb).in_place ? "--out-of-place" : "--in-place";
}

const char* sizes_help(Verb verb) {
  if (verb == Verb::kSparseRows) {
    return "Bytes of the table, comma-separated, with suffixes K, M and G; rounded down to whole "
           "rows, at least one";
  }
  return has_parts(verb)
             ? "Bytes of the parts of all ranks, comma-separated, with suffixes K, M and G; "
               "rounded down so that parts are equal, with at least an element each"
             : "Bytes, comma-separated, with suffixes K, M and G; rounded down to whole elements, "
               "at least one";
}

/// Returns the names of those values of `all` for which `is_wanted` is true.
template <typename Values, typename IsWanted>
std::string names_of(const Values& all, const IsWanted& is_wanted) {
  std::vector<std::string_view> names;
  for (const auto value : all) {
    if (is_wanted(value)) names.push_back(to_string(value));
  }
  return fmt::to_string(fmt::join(names, ", "));
}

std::string dtype_help(Verb verb) {
  return "Type of the elements: " + names_of(kAllDTypes, [&](DType dtype) {
           if (!reduces(verb)) return true;
           if (verb == Verb::kSparseRows) return is_number(dtype);
           return takes(ReduceOp::kSum, dtype);
         });
}

/// Returns the name of the operation; empty if elements are only moved.
std::optional<std::string_view> op_of(const CollectiveCase& what) {
  return reduces(what.verb) ? std::optional(to_string(what.op)) : std::nullopt;
}

/// Returns notes that explain how to compare the rows of these systems.
std::vector<std::string> notes(const Runtime& runtime, const CollectiveOptions& options,
                               const std::vector<std::string>& peers) {
  const auto compares = [&](std::string_view name) { return std::ranges::count(peers, name) > 0; };
  const bool one_node = runtime.num_nodes() == 1;
  const Verb verb = options.what.verb;
  const bool has_gradients = verb == Verb::kAllReduce && fits_gradients(options.what);
  std::vector<std::string> all = {
      fmt::format("kolo-bench {}, kolo {}, kernels {}", to_string(verb), kVersion, kernel_target()),
      fmt::format("{} ranks on {} nodes, {} cores here; time, algbw and busbw: mean of a loop; "
                  "others: slowest rank of each iteration",
                  runtime.world_size(), runtime.num_nodes(), std::thread::hardware_concurrency())};
  if (has_root(verb)) all.emplace_back("rank 0 is the root");
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
  if (compares("streaming") && one_node) {
    all.emplace_back(
        "streaming, from 64 KiB on: the copies and additions that no rank can avoid, in memory "
        "that all have mapped, without flags; a reference, no lower bound");
  }
  if (compares("limit") && !one_node) {
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

Table make_table(const Runtime& runtime, const CollectiveOptions& options,
                 const std::vector<std::string>& peers) {
  return {runtime.rank() == 0,
          notes(runtime, options, peers),
          {{"size"},
           {"count"},
           {"dtype", 8},
           {"op", 7},
           {"system", 9},
           {"memory", 11},
           {"in_place", 8},
           {"algorithm", -26},
           {"ranks", 5},
           {"time_us", 10, 2},
           {"median_us", 10, 2},
           {"min_us", 10, 2},
           {"p99_us", 10, 2},
           {"algbw_GBps", 10, 3},
           {"busbw_GBps", 10, 3},
           {"wire_bytes"},
           {"wrong", 6}}};
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

class CollectiveCommand {
 public:
  /// Adds the command to `app`. This object must outlive the parsing.
  CollectiveCommand(CLI::App& app, Verb verb);

  const CLI::App& command() const { return command_; }
  /// Runs the benchmark; returns true if all results were right. Collective.
  bool run();

 private:
  void resolve();
  /// Measures direct calls instead of gradient sets, which do not support the case.
  void measure_calls();

  void add_memory();
  void add_sparse_rows_options();
  void add_loop_options();

  const Verb verb_;
  CLI::App& command_;
  Options runtime_;
  std::vector<std::string> sizes_ = {"4", "1K", "64K", "1M", "16M", "64M"};
  std::vector<std::string> homes_ = {"arena"};
  std::vector<std::string> compare_;
  std::string dtype_ = "float32", op_ = "sum", json_, label_;
  bool other_place_ = false;
  CollectiveOptions options_;
};

CollectiveCommand::CollectiveCommand(CLI::App& app, Verb verb)
    : verb_(verb),
      command_(
          *app.add_subcommand(std::string(to_string(verb)),
                              fmt::format("Time and bandwidth of {} by size", subject(verb)))) {
  const VerbTraits& traits = traits_of(verb);
  command_.add_option("--sizes", sizes_, sizes_help(verb))->delimiter(',');
  command_.add_option("--dtype", dtype_, dtype_help(verb));
  if (verb == Verb::kSparseRows) {
    add_sparse_rows_options();
  } else if (reduces(verb)) {
    command_.add_option("--op", op_,
                        fmt::format("Reduction, which must take the dtype: {}",
                                    names_of(kEveryReduceOp, [](ReduceOp) { return true; })));
  }
  command_
      .add_option(
          "--compare", compare_,
          fmt::format("Systems to measure beside Kolo: {}. A row of a system is the best of "
                      "its algorithms; mpi's are Open MPI's{}",
                      fmt::join(Peers::known(verb), ", "),
                      traits.has_references
                          ? "; limit, from 64 KiB on, is a lower bound between nodes; "
                            "streaming is a reference inside a node"
                          : ""))
      ->delimiter(',');
  add_memory();
  CLI::Option* const place = command_.add_flag(
      other_place_name(verb), other_place_,
      traits.in_place ? "Also measure with contribution and result in separate buffers"
                      : "Also measure with contribution and result in one buffer, as peers do it");
  if (!has_other_place(verb)) place->group("");  // not in the help; refused with the reason
  add_loop_options();
  command_.add_option("--json", json_, "Write the rows to this file");
  command_.add_option("--label", label_, "Text that every row of the JSON carries");
  add_runtime_options(command_, runtime_, [verb](std::string_view name) {
    // Results are checked element by element, so compression is not allowed.
    if (name == "compression") return false;
    if (verb == Verb::kAllReduce) return true;
    return !is_of_gradients(name) && std::ranges::find(kOfAllReduce, name) == kOfAllReduce.end();
  });
}

void CollectiveCommand::add_memory() {
  if (verb_ == Verb::kAllReduce) {
    command_
        .add_option("--memory", homes_,
                    "Where gradients live, comma-separated: arena (Kolo's, zero copy: ranks of a "
                    "node write into each other's gradients), user (the caller's, private), device "
                    "and device-user (the same on a GPU). Peers are measured in the caller's "
                    "memory")
        ->delimiter(',');
    return;
  }
  homes_ = {std::string(to_string(Home::kUser))};
  if (verb_ == Verb::kSparseRows) return;
  std::vector<std::string_view> known{to_string(Home::kUser), to_string(Home::kDeviceUser)};
  if (verb_ != Verb::kSendRecv) known.push_back(to_string(Home::kArena));
  command_
      .add_option("--memory", homes_,
                  fmt::format("Where buffers lie, comma-separated: {}: the caller's, private; the "
                              "caller's on a GPU; allocated by Kolo: ranks of a node read each "
                              "other's. Peers are measured in the caller's memory",
                              fmt::join(known, ", ")))
      ->delimiter(',')
      ->check(CLI::IsMember(known));
}

void CollectiveCommand::add_loop_options() {
  const std::string least = fmt::format("at least {}", kLeastIterations);
  command_
      .add_option("--iterations", options_.iterations,
                  "Timed iterations of a row; 0: by size, within --seconds, and " + least)
      ->check(CLI::Range(0, 1'000'000'000));
  command_
      .add_option("--seconds", options_.seconds,
                  "Seconds for the timed iterations of a row, which are " + least)
      ->check(CLI::PositiveNumber);
  command_
      .add_option("--warmup", options_.warmup,
                  "Largest number of untimed iterations before each round")
      ->check(CLI::Range(0, 1'000'000'000));
  command_
      .add_option("--rounds", options_.rounds,
                  "Rounds within a size; each measures every system in turn")
      ->check(CLI::Range(1, 1000));
  command_.add_flag("--fresh,!--untouched", options_.fresh,
                    "Contributions written anew before each call, outside the time, and a barrier "
                    "(the default): as in a program, they are in the caches of the ranks that "
                    "wrote them. --untouched leaves them as they are: peers may still have those "
                    "of the last call in their caches");
  command_.add_flag("--together", options_.together,
                    "A barrier before each call, between nodes after a rest, so that ranks begin "
                    "it together; without it, ranks that need no data from others, such as the "
                    "root of a broadcast, run ahead");
}

void CollectiveCommand::add_sparse_rows_options() {
  const std::map<std::string, RowForm> forms = {
      {"auto", RowForm::kAuto}, {"rows", RowForm::kRows}, {"table", RowForm::kTable}};
  CollectiveCase& what = options_.what;
  command_.add_option("--width", what.width, "Elements of a row of the table")
      ->check(CLI::Range(1, 1'000'000));
  command_
      .add_option("--density", what.density,
                  "Rows that each rank passes, relative to those of the table; drawn by Zipf's "
                  "law, so that low ones come often")
      ->check(CLI::Range(0.0, 100.0));
  for (const auto& [flag, form, help] :
       {std::tuple("--result", &what.rows_result,
                   "Form of the result: rows, table or auto, that of the exchange"),
        {"--exchange", &what.rows_exchange,
         "What travels: rows, table or auto, by predicted cost"}}) {
    command_.add_option(flag, *form, help)
        ->transform(CLI::CheckedTransformer(forms))
        ->default_str("auto");
  }
}

void CollectiveCommand::resolve() {
  require_read(command_, {{"--seconds", options_.iterations == 0, "calls without --iterations"},
                          {"--label", !json_.empty(), "--json"}});
  runtime_ = options_from_environment(std::move(runtime_));
  const auto dtype = parse_dtype(dtype_);
  const auto op = parse_reduce_op(op_);
  if (!dtype) refuse("--dtype: no dtype '" + dtype_ + "'");
  if (!op) refuse("--op: no operation '" + op_ + "'");
  if (reduces(verb_) && !takes(*op, *dtype))
    refuse("--op " + op_ + " does not take --dtype " + dtype_);
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
  if (other_place_ && !has_other_place(verb_)) {
    refuse(fmt::format("{}: {} is measured {} only", other_place_name(verb_), subject(verb_),
                       traits.in_place ? "in place" : "out of place"));
  }
  options_.places = {traits.in_place};
  if (other_place_) options_.places.push_back(!traits.in_place);
  options_.sizes = parse_sizes("--sizes", sizes_);
}

void CollectiveCommand::measure_calls() {
  const std::string what = op_ + " of " + dtype_;
  if (options_.what.wire) refuse("--wire goes with gradients, which do not take " + what);
  const bool is_elsewhere =
      std::ranges::count(options_.homes, Home::kUser) == 0 || options_.homes.size() > 1;
  if (command_.count("--memory") > 0 && is_elsewhere) {
    refuse("--memory, but for user, holds gradients, which do not take " + what);
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

  expect_output(runtime, json_);
  Table table = make_table(runtime, options_, compare_);
  bool right = true;
  measure_collective(runtime, systems, options_, [&](const CollectiveRow& row) {
    right &= row.wrong.value_or(0) == 0;
    table.add(to_json(runtime, label_, row));
  });
  systems.clear();
  runtime.close();
  table.write(json_);
  return right;
}

}  // namespace

Command add_collective(CLI::App& app, Verb verb) {
  auto command = std::make_shared<CollectiveCommand>(app, verb);
  return {&command->command(), [command] { return command->run(); }};
}

}  // namespace kolo::bench
