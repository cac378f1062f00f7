#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "comm/verify/verifier.h"
#include "tests/support/schedule_order.h"

namespace kolo::test {

using Schedules = std::vector<Schedule>;
/// Rank and index of a step.
using Place = std::pair<std::size_t, StepId>;

inline Step& at(Schedules& schedules, Place where) {
  return schedules[where.first].steps[where.second];
}

/// Returns a random step for which `eligible` returns true, if there is one.
template <typename Eligible>
std::optional<Place> pick(const Schedules& schedules, std::mt19937& random, Eligible eligible) {
  std::vector<Place> found;
  for (std::size_t rank = 0; rank < schedules.size(); ++rank) {
    for (StepId id = 0; id < schedules[rank].steps.size(); ++id) {
      if (eligible(schedules[rank].steps[id])) found.emplace_back(rank, id);
    }
  }
  if (found.empty()) return std::nullopt;
  return found[random() % found.size()];
}

/// Replaces a step by one that does nothing. Its number and its dependencies remain.
inline void disarm(Schedules& schedules, Place where) {
  Step& step = at(schedules, where);
  step = Step{.kind = StepKind::kCopy,
              .sources = {Range{.rank = static_cast<int>(where.first)}},
              .after = step.after};
}

/// Damages correct schedules. Returns false if the schedules have nothing of this kind.
using Damage = std::function<bool(Schedules&, const ProcessGrid&, std::mt19937&)>;

struct Mutation {
  const char* name;
  Damage damage;
};

/// Changes a random step for which `eligible` returns true.
template <typename Eligible, typename Change>
Damage change_a_step(Eligible eligible, Change change) {
  return [=](Schedules& schedules, const ProcessGrid&, std::mt19937& random) {
    const auto where = pick(schedules, random, eligible);
    if (where) change(at(schedules, *where));
    return where.has_value();
  };
}

/// Disarms a random step for which `eligible` returns true.
template <typename Eligible>
Damage drop_a_step(Eligible eligible) {
  return [=](Schedules& schedules, const ProcessGrid&, std::mt19937& random) {
    const auto where = pick(schedules, random, eligible);
    if (where) disarm(schedules, *where);
    return where.has_value();
  };
}

/// Removes a dependency of a random step for which `eligible` returns true. `is_needed(earlier,
/// step)` returns true for the dependency, and no other dependency orders the two steps.
template <typename Eligible, typename Needed>
Damage lose_an_order(Eligible eligible, Needed is_needed) {
  return [=](Schedules& schedules, const ProcessGrid& grid, std::mt19937& random) {
    for (int attempt = 0; attempt < 200; ++attempt) {
      const auto where = pick(schedules, random, [&](const Step& step) {
        return !step.after.empty() && eligible(step);
      });
      if (!where) return false;
      Step& step = at(schedules, *where);
      const std::size_t index = random() % step.after.size();
      const StepId earlier = step.after[index];
      if (!is_needed(at(schedules, {where->first, earlier}), step)) continue;
      step.after.erase(step.after.begin() + static_cast<std::ptrdiff_t>(index));
      const int rank = static_cast<int>(where->first);
      if (!ordered(schedules, grid, {rank, earlier}, {rank, where->second})) return true;
      step.after.push_back(earlier);
    }
    return false;
  };
}

/// Expects that the verifier detects each mutation of `correct`. Returns the names of the mutations
/// that found nothing to damage.
inline std::vector<std::string> expect_caught(const Schedules& correct, const ProcessGrid& grid,
                                              const CollectiveSpec& spec,
                                              std::span<const Mutation> mutations) {
  const auto complaint = verify(correct, grid, spec);
  EXPECT_EQ(complaint, std::nullopt) << *complaint;
  std::vector<std::string> not_found;
  for (const auto& [name, damage] : mutations) {
    bool is_found = false;
    for (unsigned seed = 0; seed < 40; ++seed) {
      std::mt19937 random(seed);
      Schedules damaged = correct;
      if (!damage(damaged, grid, random)) continue;
      is_found = true;
      EXPECT_NE(verify(damaged, grid, spec), std::nullopt) << name << " seed " << seed;
    }
    if (!is_found) not_found.emplace_back(name);
  }
  return not_found;
}

}  // namespace kolo::test
