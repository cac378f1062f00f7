#pragma once

#include <set>
#include <utility>
#include <vector>

#include "comm/schedule/schedule.h"
#include "topology/process_grid.h"

namespace kolo::test {

/// Identifies a step by its rank and index.
using StepPlace = std::pair<int, StepId>;

/// Returns the steps that must complete just before `where`: its dependencies, the peer's step for
/// its message or flag, and the dependencies of the matching native steps of other ranks.
inline std::vector<StepPlace> directly_before(const std::vector<Schedule>& schedules,
                                              const ProcessGrid& grid, StepPlace where) {
  const int rank = where.first;
  const Step& step = schedules[static_cast<std::size_t>(rank)].steps[where.second];
  std::vector<StepPlace> before;
  for (StepId earlier : step.after) before.emplace_back(rank, earlier);
  const auto visit_steps = [&](int other, auto visit) {
    const std::vector<Step>& theirs = schedules[static_cast<std::size_t>(other)].steps;
    for (StepId id = 0; id < theirs.size(); ++id) visit(theirs[id], id);
  };
  if (step.kind == StepKind::kRecv || (step.kind == StepKind::kAwait && step.lag == 0)) {
    const StepKind source = step.kind == StepKind::kRecv ? StepKind::kSend : StepKind::kSignal;
    visit_steps(step.peer, [&](const Step& theirs, StepId id) {
      if (theirs.kind == source && theirs.peer == rank && theirs.ordinal == step.ordinal) {
        before.emplace_back(step.peer, id);
      }
    });
  }
  if (step.kind == StepKind::kNative) {
    for (int other = 0; other < grid.world_size(); ++other) {
      if (step.group == NativeGroup::kNode && !grid.same_node(rank, other)) continue;
      visit_steps(other, [&](const Step& theirs, StepId) {
        if (theirs.kind != StepKind::kNative || theirs.ordinal != step.ordinal) return;
        for (StepId earlier : theirs.after) before.emplace_back(other, earlier);
      });
    }
  }
  return before;
}

/// Returns whether `from` always completes before `to` starts. The search follows the definition
/// and shares no code with the verifier.
inline bool ordered(const std::vector<Schedule>& schedules, const ProcessGrid& grid, StepPlace from,
                    StepPlace to) {
  std::vector<StepPlace> open{to};
  std::set<StepPlace> seen{to};
  while (!open.empty()) {
    const StepPlace place = open.back();
    open.pop_back();
    if (place == from) return true;
    for (const StepPlace& next : directly_before(schedules, grid, place)) {
      if (seen.insert(next).second) open.push_back(next);
    }
  }
  return false;
}

}  // namespace kolo::test
