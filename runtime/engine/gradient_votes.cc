#include "runtime/engine/gradient_votes.h"

#include <optional>

#include "comm/base/log.h"
#include "runtime/plan/gradient_plan.h"

namespace kolo {

void GradientVotes::begin(const std::shared_ptr<GradientGroup>& group) {
  if (group->is_open()) {
    group->measure_dense_steps(step_clock_);
  } else if (has_votes_on_sizes(*group)) {
    return vote_on_sizes(group);
  } else {
    group->go_on_with({});
  }
  group->registration().complete(std::nullopt);
}

void GradientVotes::cast(const std::shared_ptr<GradientGroup>& group) {
  if (group->is_open()) {
    vote_on_steps(group);
  } else {
    vote_on_sizes(group);
  }
}

bool GradientVotes::accept(const Frame& decision) {
  const auto vote = undecided_.extract(decision.topic);
  if (vote.empty()) return false;
  const std::shared_ptr<GradientGroup>& group = vote.mapped();
  if (group->failed()) return true;
  try {
    if (group->is_open()) {
      settle(group, dense_steps(decision.least));
    } else {
      resize(*group, size_decision(decision.greatest));
    }
  } catch (const KoloError& e) {
    group->bucket_failed(e.error());
    coordinator_.fail(e.error());
  }
  return true;
}

bool GradientVotes::reject(const Topic& topic, const Error& error) {
  const auto vote = undecided_.extract(topic);
  if (vote.empty()) return false;
  vote.mapped()->bucket_failed(error);
  return true;
}

/// Of a set that lives on a device sizes are the options'.
bool GradientVotes::has_votes_on_sizes(const GradientGroup& group) const {
  return context_.options.autotune == "on" && context_.grid.world_size() > 1 && group.is_on_host();
}

/// Rank 0's word is the only one that is not 0.
void GradientVotes::vote_on_sizes(const std::shared_ptr<GradientGroup>& group) {
  const std::uint64_t word =
      context_.transport.rank() == 0 ? to_word(decide_sizes(*group)) : std::uint64_t{0};
  const Topic topic =
      coordinator_.vote("sizes " + group->name(), word,
                        "the sizes of gradient set '" + group->name() + "'", group->waiters());
  undecided_.emplace(topic, group);
}

SizeDecision GradientVotes::decide_sizes(GradientGroup& group) {
  auto tuner = tuners_.find(&group);
  if (tuner == tuners_.end()) {
    const CalibrationFile file(calibration_path(context_.options.calibration_file),
                               calibration_.shape);
    tuner = tuners_.try_emplace(&group, tuned_set(group, context_), file).first;
    group.measure_steps(step_clock_);
  }
  const auto way_of = [&](const TuneCandidate& candidate) {
    const TunedSizes sizes = tuner->second.sizes(candidate);
    const Options options = with_sizes(context_.options, sizes.fusion_bytes, sizes.chunk_bytes);
    return way_of_travel(group, with_options(context_, options));
  };
  const SizeDecision decision = tuner->second.decide(group.take_steps(), way_of);
  if (decision.iterations == 0) tuners_.erase(tuner);
  return decision;
}

void GradientVotes::resize(GradientGroup& group, const SizeDecision& decision) {
  if (group.has_other_sizes(decision)) {
    const Options options =
        with_sizes(context_.options, decision.fusion_bytes, decision.chunk_bytes);
    replan_gradients(group, with_options(context_, options));
  }
  group.go_on_with(decision);
  group.registration().complete(std::nullopt);
}

/// The word of the rank that waited least counts: all decide by that, and by costs that they have
/// alike.
void GradientVotes::vote_on_steps(const std::shared_ptr<GradientGroup>& group) {
  const Topic topic = coordinator_.vote(
      "steps " + group->name(), to_word(group->take_dense_steps()),
      "what steps of gradient set '" + group->name() + "' take", group->waiters());
  undecided_.emplace(topic, group);
}

void GradientVotes::settle(const std::shared_ptr<GradientGroup>& group,
                           const DenseSteps& measured) {
  if (group->settle(measured, context_.grid, context_.costs)) replan_gradients(*group, context_);
  if (context_.transport.rank() == 0) {
    for (const CompressionDecision& decision : group->decisions()) {
      log::info("compression, settled: " + to_string(decision));
    }
  }
  if (has_votes_on_sizes(*group)) return vote_on_sizes(group);
  group->go_on_with({});
}

}  // namespace kolo
