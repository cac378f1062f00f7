#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "runtime/calibration/calibration_file.h"
#include "runtime/plan/autotune.h"
#include "runtime/plan/size_decision.h"

namespace kolo {

/// A gradient set as a tuner sees it.
struct TunedSet {
  std::string name;
  std::string plan;     ///< Names it in a `CalibrationFile`, with how it travels.
  TuneCandidate first;  ///< What options and cost model say.
  /// What is looked for; with neither, only what is remembered is taken.
  bool tunes_fusion = true;
  bool tunes_chunks = true;
};

/// Rank 0's part in finding sizes for a gradient set: takes its step times, says what all ranks run
/// with next, and remembers the answer, which a later run of this job shape begins with. Each
/// answer is logged once, with its reason. Threads: the engine's.
class GradientTuner {
 public:
  /// Names the way in which candidates make the set travel, equal ways alike; empty if they cannot.
  using WayOfTravel = std::function<std::optional<std::uint64_t>(const TuneCandidate&)>;

  GradientTuner(TunedSet set, CalibrationFile file);

  /// What comes next. `steps_us` are the steps since the last decision, which ran with it.
  SizeDecision decide(std::span<const double> steps_us, const WayOfTravel& way_of);

  /// A candidate as a decision says it: 0 for what is as options and cost model say.
  TunedSizes sizes(const TuneCandidate& candidate) const;

 private:
  SizeDecision settle();

  const TunedSet set_;
  CalibrationFile file_;
  Autotune autotune_;
  bool has_begun_ = false;
  std::size_t steps_ = 0;
};

}  // namespace kolo
