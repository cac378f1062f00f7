#include "runtime/tools/schedule_command.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "comm/algorithms/all_reduce/all_reduce.h"
#include "comm/algorithms/chunking.h"
#include "comm/algorithms/compile.h"
#include "comm/base/check.h"
#include "comm/base/output_file.h"
#include "comm/schedule/collective_spec.h"
#include "runtime/options/option_values.h"
#include "runtime/tools/command_line.h"
#include "runtime/tools/schedule_view.h"

namespace kolo {
namespace {

constexpr int kMostRanks = 256;
constexpr std::size_t kMostBytes = std::size_t{1} << 30;

/// Makes a check for `CLI::Option`: `parse` must accept the value.
template <typename Parse>
auto readable(Parse parse) {
  return [parse](const std::string& text) -> std::string {
    try {
      parse(text);
    } catch (const KoloError& error) {
      return error.error().what;
    }
    return {};
  };
}

ProcessGrid grid_of(int ranks, int nodes) {
  check(nodes <= ranks, fmt::format("--nodes: {} nodes are more than {} ranks", nodes, ranks));
  std::vector<int> sizes;
  for (int node = 0; node < nodes; ++node) {
    sizes.push_back(ranks / nodes + (node < ranks % nodes ? 1 : 0));
  }
  return ProcessGrid::with_node_sizes(sizes);
}

/// An all-reduce may use a bucket; other collectives use the caller's tensors.
BucketLayout layout_of(const CollectiveSpec& spec, const std::string& memory,
                       const ProcessGrid& grid) {
  const bool is_all_reduce = spec.kind == CollectiveKind::kAllReduce;
  BucketLayout layout{.count = spec.count(),
                      .placement = Placement::kUser,
                      .memory = memory == "device" ? MemoryKind::kDevice : MemoryKind::kHost,
                      .out_of_place = has_pairs(spec.kind)};
  if (is_all_reduce && memory != "user") layout.placement = Placement::kInPlace;
  if (is_all_reduce && layout.is_on_device()) {
    const std::size_t unit = device_padding(grid, layout.dtype);
    layout.count = (layout.count + unit - 1) / unit * unit;
  }
  return layout;
}

/// Formats predicted times, cheapest first: "predicted: ring 36.0 us, direct 38.0 us".
std::string predictions(const CompileContext& context) {
  std::vector<std::pair<double, std::string_view>> all;
  for (const Choice& each : considered(context)) {
    all.emplace_back(each.price.us, each.algorithm->name());
  }
  if (context.layout.is_in_tensors(MemoryKind::kDevice)) {
    BucketLayout host = context.layout;
    host.memory = MemoryKind::kHost;
    const CompileContext by_host{context.spec, host, context.grid, context.options};
    const double copies_us = bounce_us(context.spec, host.dtype, context.grid.world_size(),
                                       context.options.link_costs.staging);
    all.emplace_back(copies_us + choose(by_host).price.us, "through host memory");
  }
  std::ranges::sort(all);
  std::vector<std::string> texts;
  for (const auto& [us, name] : all) texts.push_back(fmt::format("{} {:.1f} us", name, us));
  return fmt::format("predicted: {}\n", fmt::join(texts, ", "));
}

}  // namespace

ScheduleCommand::ScheduleCommand(CLI::App& app)
    : command_(*app.add_subcommand(
          "schedule",
          "Print the steps of each rank in a collective of float32, without launching a job. "
          "Ranges count elements of 4 bytes and hold their first element and not their last; link "
          "costs are the defaults.")) {
  command_.add_option("--collective", arguments_.collective, "Name of the collective")
      ->check(one_of(collective_kind_names()))
      ->capture_default_str();
  command_.add_option("--algorithm", arguments_.algorithm, "Name of the algorithm, or auto")
      ->capture_default_str();
  command_.add_option("--ranks", arguments_.ranks, "Ranks of the job")
      ->check(CLI::Range(1, kMostRanks))
      ->capture_default_str();
  command_
      .add_option("--nodes", arguments_.nodes, "Nodes, which the ranks fill evenly and in order")
      ->check(CLI::Range(1, kMostRanks))
      ->capture_default_str();
  command_
      .add_option(
          "--size", arguments_.size,
          "Bytes of the gradients on each rank, or of the parts of all ranks, with K, M or G")
      ->check(
          readable([](const std::string& text) { parse_bytes(text, sizeof(float), kMostBytes); }))
      ->capture_default_str();
  command_
      .add_option("--memory", arguments_.memory,
                  "Place of the tensors: arena (of an all-reduce), user or device")
      ->check(one_of({"arena", "user", "device"}))
      ->capture_default_str();
  command_.add_option("--svg", arguments_.svg, "File that gets a picture of the steps");
  command_.footer(help_footer());
}

bool ScheduleCommand::chosen() const { return command_.parsed(); }

std::vector<Schedule> ScheduleCommand::schedules(const ProcessGrid& grid, std::size_t bytes) const {
  const bool is_arena = command_.count("--memory") > 0 && arguments_.memory == "arena";
  check(!is_arena || arguments_.collective == to_string(CollectiveKind::kAllReduce),
        "--memory arena is for all-reduces");
  const CollectiveSpec spec = even_spec(parse_collective_kind(arguments_.collective),
                                        grid.world_size(), bytes / sizeof(float));
  const BucketLayout layout = layout_of(spec, arguments_.memory, grid);
  CompileOptions options{.algorithm = arguments_.algorithm};
  const CompileContext context{spec, layout, grid, options};
  std::vector<Schedule> all;
  try {
    const Algorithm& algorithm = *choose(context).algorithm;
    const std::vector<std::string_view> names = options.algorithm.names_for(spec.kind);
    const bool is_named = std::ranges::any_of(names, [&](std::string_view name) {
      return name == algorithm.name() ||
             (name == kHierarchical && algorithm.name().starts_with(name));
    });
    check(names.empty() || is_named,
          fmt::format("algorithm {} does not serve {} here, on these nodes and in this memory; "
                      "auto takes {}",
                      names.empty() ? "" : names.front(), arguments_.collective, algorithm.name()));
    options.chunk_bytes = algorithm.chunk_bytes(context);
    if (grid.num_nodes() > 1) std::fputs(predictions(context).c_str(), stdout);
    for (int rank = 0; rank < grid.world_size(); ++rank) {
      all.push_back(compile(rank, algorithm, context));
    }
  } catch (const KoloError& error) {
    if (error.error().code == ErrorCode::kConfig) throw UsageError(error.error().what);
    throw;
  }
  return all;
}

void ScheduleCommand::run() const {
  const ProcessGrid grid = grid_of(arguments_.ranks, arguments_.nodes);
  const std::vector<Schedule> all = schedules(grid, parse_bytes(arguments_.size));
  if (!arguments_.svg.empty()) write_file(arguments_.svg, schedule_svg(all, grid));
  std::fputs(schedule_table(all, grid, arguments_.collective).c_str(), stdout);
}

}  // namespace kolo
