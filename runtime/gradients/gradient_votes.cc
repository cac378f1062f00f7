#include "runtime/gradients/gradient_votes.h"

#include "comm/base/log.h"
#include "runtime/gradients/gradient_plan.h"

namespace kolo {

void GradientVotes::begin(const std::shared_ptr<GradientGroup>& group) {
  if (group->is_open()) {
    const std::weak_ptr<GradientGroup> measured = group;
    group->measure_dense_steps(step_clock_, [this, measured] { cast(measured.lock()); });
  } else {
    group->iterations().begin();
  }
  group->registration().complete();
}

/// The smallest value counts, that of the rank that waited least: all ranks decide by it, and by
/// costs that are the same everywhere.
void GradientVotes::cast(const std::shared_ptr<GradientGroup>& group) {
  const Topic topic =
      coordinator_.vote("steps " + group->name(), to_word(group->iterations().take_dense_steps()),
                        "the step times of gradient set '" + group->name() + "'", *group);
  undecided_.emplace(topic, group);
}

bool GradientVotes::accept(const Frame& decision) {
  const auto vote = undecided_.extract(decision.topic);
  if (vote.empty()) return false;
  if (!vote.mapped()->failed()) settle(*vote.mapped(), dense_steps(decision.least));
  return true;
}

bool GradientVotes::reject(const Topic& topic, const Error& error) {
  const auto vote = undecided_.extract(topic);
  if (vote.empty()) return false;
  vote.mapped()->fail(error);
  return true;
}

void GradientVotes::settle(GradientGroup& group, const DenseSteps& measured) {
  if (group.settle(measured, context_.grid, context_.costs)) replan_gradients(group, context_);
  if (context_.transport.rank() == 0) {
    for (const CompressionDecision& decision : group.decisions()) {
      log::info("compression, settled: " + to_string(decision));
    }
  }
  group.iterations().vote_ended();
}

}  // namespace kolo
