#include <algorithm>
#include <iterator>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/tools/schedule_view.h"

namespace kolo {
namespace {

std::string range_text(const Range& range, int rank) {
  const std::string place =
      fmt::format("{}[{},{})", to_string(range.region), range.offset, range.end());
  return range.rank == rank ? place : fmt::format("{} of rank {}", place, range.rank);
}

std::string waits_text(const Step& step, const std::optional<StepPlace>& source) {
  std::vector<std::string> steps;
  for (StepId earlier : step.after) steps.push_back(std::to_string(earlier));
  if (source) steps.push_back(fmt::format("rank {} step {}", source->rank, source->step));
  if (step.kind == StepKind::kNative) {
    steps.emplace_back(step.group == NativeGroup::kNode ? "its node" : "all ranks");
  }
  return steps.empty() ? "-" : fmt::format("{}", fmt::join(steps, ", "));
}

std::string kind_text(const Step& step) {
  if (step.kind != StepKind::kNative) return std::string(to_string(step.kind));
  switch (step.native) {
    case NativeOp::kReduceScatter:
      return "reduce-scatter";
    case NativeOp::kAllGather:
      return "all-gather";
    case NativeOp::kReduceParts:
      return "reduce-parts";
    case NativeOp::kGatherParts:
      return "gather-parts";
    case NativeOp::kExchange:
      return "exchange";
    case NativeOp::kAllReduce:
      break;
  }
  return "all-reduce";
}

void append_rank(std::string& text, const Schedule& schedule, const ProcessGrid& grid,
                 const ScheduleOrder& order) {
  const auto out = std::back_inserter(text);
  const int rank = schedule.rank;
  const ScheduleTraffic sent = traffic(schedule, [](int) { return true; });
  fmt::format_to(out, "\nrank {} on node {}: {} steps; sends {} messages, {} bytes\n", rank,
                 grid.node(rank), schedule.steps.size(), sent.messages, sent.bytes);
  std::vector<std::string> operands;
  std::size_t width = std::string_view("elements").size();
  for (const Step& step : schedule.steps) {
    operands.push_back(operands_text(step, rank));
    width = std::max(width, operands.back().size());
  }
  fmt::format_to(out, "  {:>4}  {:>5}  {:<14}  {:>4}  {:<{}}  {}\n", "step", "round", "kind",
                 "peer", "elements", width, "waits for");
  const auto row = static_cast<std::size_t>(rank);
  for (StepId id = 0; id < schedule.steps.size(); ++id) {
    const Step& step = schedule.steps[id];
    fmt::format_to(out, "  {:>4}  {:>5}  {:<14}  {:>4}  {:<{}}  {}\n", id, order.round[row][id],
                   kind_text(step), step.peer < 0 ? "-" : std::to_string(step.peer), operands[id],
                   width, waits_text(step, order.source[row][id]));
  }
}

}  // namespace

std::string grid_text(const ProcessGrid& grid) {
  const int ranks = grid.world_size(), nodes = grid.num_nodes();
  return fmt::format("{} rank{} on {} node{}", ranks, ranks == 1 ? "" : "s", nodes,
                     nodes == 1 ? "" : "s");
}

std::string operands_text(const Step& step, int rank) {
  std::vector<std::string> sources, targets;
  const auto append = [rank](std::vector<std::string>& texts, const Range& range) {
    if (range.count > 0) texts.push_back(range_text(range, rank));
  };
  for (const Range& range : step.sources) append(sources, range);
  append(targets, step.target);
  for (const Range& range : step.mirrors) append(targets, range);
  if (sources.empty() && targets.empty()) return "-";
  if (step.kind == StepKind::kExchange) {
    return fmt::format("{} -> {}, {} -> {}", sources[0], targets[1], sources[1], targets[0]);
  }
  const char* const arrow = targets.empty() || sources.empty() ? "" : " -> ";
  return fmt::format("{}{}{}", fmt::join(sources, " + "), arrow, fmt::join(targets, ", "));
}

std::string schedule_table(std::span<const Schedule> schedules, const ProcessGrid& grid,
                           std::string_view collective) {
  const ScheduleOrder order = order_of(schedules, grid);
  const BucketLayout& layout = schedules[0].layout;
  std::string text = fmt::format(
      "{} of {} elements of {} by {}: {}, {} rounds\n"
      "  round: the first in which the step can run if each step takes one\n",
      collective, layout.count, to_string(layout.dtype), schedules[0].algorithm, grid_text(grid),
      order.rounds);
  for (const Schedule& schedule : schedules) append_rank(text, schedule, grid, order);
  return text;
}

}  // namespace kolo
