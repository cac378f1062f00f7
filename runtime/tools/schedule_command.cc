#include "runtime/tools/schedule_command.h"

#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "comm/base/check.h"
#include "comm/base/output_file.h"
#include "comm/collective/compile.h"
#include "runtime/api/option_values.h"
#include "runtime/tools/command_line.h"
#include "runtime/tools/schedule_view.h"

namespace kolo {
namespace {

constexpr int kMostRanks = 256;
constexpr std::size_t kMostBytes = std::size_t{1} << 30;

/// A check for `CLI::Option`: `parse` accepts the value.
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

BucketLayout layout_of(std::size_t bytes, const std::string& memory, const ProcessGrid& grid) {
  BucketLayout layout{.count = bytes / sizeof(float)};
  if (memory == "user") layout.placement = Placement::kUser;
  if (memory == "device") {
    layout.memory = MemoryKind::kDevice;
    const std::size_t unit = device_padding(grid, layout.dtype);
    layout.count = (layout.count + unit - 1) / unit * unit;
  }
  return layout;
}

std::vector<Schedule> compile_all(const BucketLayout& layout, const ProcessGrid& grid,
                                  CompileOptions options) {
  std::vector<Schedule> schedules;
  try {
    options.chunk_bytes = cheapest_chunk_bytes(layout, grid, options);
    for (int rank = 0; rank < grid.world_size(); ++rank) {
      schedules.push_back(compile_all_reduce(rank, layout, grid, options));
    }
  } catch (const KoloError& error) {
    if (error.error().code == ErrorCode::kConfig) throw UsageError(error.error().what);
    throw;
  }
  return schedules;
}

}  // namespace

ScheduleCommand::ScheduleCommand(CLI::App& app)
    : command_(*app.add_subcommand(
          "schedule",
          "Print the steps of each rank in an all-reduce of float32, without launching a job. "
          "Ranges count elements of 4 bytes and hold their first element and not their last; link "
          "costs are the defaults.")) {
  command_.add_option("--algorithm", arguments_.algorithm, "Name of the algorithm, or auto")
      ->check(readable([](const std::string& text) { AlgorithmRequest{text}; }))
      ->capture_default_str();
  command_.add_option("--ranks", arguments_.ranks, "Ranks of the job")
      ->check(CLI::Range(1, kMostRanks))
      ->capture_default_str();
  command_
      .add_option("--nodes", arguments_.nodes, "Nodes, which the ranks fill evenly and in order")
      ->check(CLI::Range(1, kMostRanks))
      ->capture_default_str();
  command_
      .add_option("--size", arguments_.size, "Bytes of the gradients on each rank, with K, M or G")
      ->check(
          readable([](const std::string& text) { parse_bytes(text, sizeof(float), kMostBytes); }))
      ->capture_default_str();
  command_
      .add_option("--memory", arguments_.memory, "Place of the gradients: arena, user or device")
      ->check(one_of({"arena", "user", "device"}))
      ->capture_default_str();
  command_.add_option("--svg", arguments_.svg, "File that gets a picture of the steps");
  command_.footer(help_footer());
}

bool ScheduleCommand::chosen() const { return command_.parsed(); }

void ScheduleCommand::run() const {
  const ProcessGrid grid = grid_of(arguments_.ranks, arguments_.nodes);
  const BucketLayout layout = layout_of(parse_bytes(arguments_.size), arguments_.memory, grid);
  const std::vector<Schedule> schedules =
      compile_all(layout, grid, {.algorithm = arguments_.algorithm});
  if (!arguments_.svg.empty()) write_file(arguments_.svg, schedule_svg(schedules, grid));
  std::fputs(schedule_table(schedules, grid).c_str(), stdout);
}

}  // namespace kolo
