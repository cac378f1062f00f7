#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/schedule/schedule.h"
#include "topology/process_grid.h"

namespace kolo {

// Pure functions that show the schedules of one collective. `schedules[r]` belongs to rank r.

/// Returns a table per rank with one line for each step: its number, the earliest round in which it
/// can run, kind, peer, ranges of elements, and the steps for which it waits. `collective` is the
/// name in the heading.
std::string schedule_table(std::span<const Schedule> schedules, const ProcessGrid& grid,
                           std::string_view collective = "all-reduce");

/// Draws the schedules as an SVG document: a column for each rank, rounds from top to bottom, a box
/// for each step, arrows for messages, flags and accesses to the memory of a peer.
std::string schedule_svg(std::span<const Schedule> schedules, const ProcessGrid& grid);

/// Formats the operands of a step: "bucket[0,16) of rank 1 + scratch[0,16) -> bucket[0,16)". Ranges
/// without a rank are in memory of `rank`. A range [first,end) does not include `end`.
std::string operands_text(const Step& step, int rank);

/// Formats a grid: "4 ranks on 1 node".
std::string grid_text(const ProcessGrid& grid);

/// Index of a step: its rank and its position in that rank's schedule.
struct StepPlace {
  int rank = 0;
  StepId step = 0;
};

/// The earliest round of every step of all ranks, if each step takes one round. Also names the
/// matching step of every receive and await.
struct ScheduleOrder {
  std::size_t rounds = 0;
  std::vector<std::vector<std::size_t>> round;  ///< By rank and step, from 0.
  /// By rank and step: the matching send of a receive, or the signal that an await waits for.
  std::vector<std::vector<std::optional<StepPlace>>> source;
};

/// Computes the order. `schedules[r]` is the schedule of rank r. Pure. Throws KoloError(kInternal)
/// if steps wait in a cycle.
ScheduleOrder order_of(std::span<const Schedule> schedules, const ProcessGrid& grid);

}  // namespace kolo
