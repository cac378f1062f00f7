#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "comm/schedule/schedule.h"
#include "topology/process_grid.h"

namespace kolo {

/// A step among those of all ranks.
struct StepPlace {
  int rank = 0;
  StepId step = 0;
};

/// When the steps of all ranks can run at the earliest, if each takes one round.
struct ScheduleOrder {
  std::size_t rounds = 0;
  std::vector<std::vector<std::size_t>> round;  ///< By rank and step, from 0.
  /// By rank and step: the send that a receive takes, or the signal that an await waits for.
  std::vector<std::vector<std::optional<StepPlace>>> source;
};

/// `schedules[r]` is rank r's. Threads: pure; any. Errors: internal if steps wait in a circle.
ScheduleOrder order_of(std::span<const Schedule> schedules, const ProcessGrid& grid);

}  // namespace kolo
