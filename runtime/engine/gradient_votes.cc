#include "runtime/engine/gradient_votes.h"

#include <utility>

#include <fmt/format.h>

#include "comm/base/log.h"
#include "runtime/engine/gradient_plan.h"
#include "runtime/plan/bucket_order.h"

namespace kolo {

void GradientVotes::begin(const std::shared_ptr<GradientGroup>& group) {
  if (group->is_open()) {
    const std::weak_ptr<GradientGroup> measured = group;
    group->measure_dense_steps(step_clock_, [this, measured] { cast(measured.lock()); });
  } else if (measures_order(context_.options, context_.algorithm, context_.grid, group->gradients(),
                            group->buckets().size())) {
    const std::weak_ptr<GradientGroup> observed = group;
    group->observe_order([this, observed] { cast_order(observed.lock()); });
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
  undecided_.emplace(topic, Vote{.group = group});
}

void GradientVotes::cast_order(const std::shared_ptr<GradientGroup>& group) {
  std::vector<std::size_t> order = group->iterations().take_order();
  const Topic topic =
      coordinator_.vote("order " + group->name(), reordered_buckets(*group, context_, order),
                        "the order of the gradients of set '" + group->name() + "'", *group);
  undecided_.emplace(topic, Vote{.group = group, .order = std::move(order)});
}

bool GradientVotes::accept(const Frame& decision) {
  const auto vote = undecided_.extract(decision.topic);
  if (vote.empty()) return false;
  const auto& [group, order] = vote.mapped();
  if (group->failed()) return true;
  if (order) {
    settle_order(*group, *order, decision);
  } else {
    settle(*group, dense_steps(decision.least));
  }
  return true;
}

bool GradientVotes::reject(const Topic& topic, const Error& error) {
  const auto vote = undecided_.extract(topic);
  if (vote.empty()) return false;
  vote.mapped().group->fail(error);
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

void GradientVotes::settle_order(GradientGroup& group, const std::vector<std::size_t>& order,
                                 const Frame& decision) {
  const bool are_agreed = decision.least == decision.greatest;
  // Ranks count alike what is in use.
  if (are_agreed && decision.least != 0 && !context_.buckets.is_crowded()) {
    const std::size_t former = group.buckets().size();
    reorder_gradients(group, context_, order);
    if (context_.transport.rank() == 0) {
      log::info(
          fmt::format("gradient set '{}': {} buckets by the measured order of gradients replace {}",
                      group.name(), group.buckets().size(), former));
    }
  } else if (!are_agreed && context_.transport.rank() == 0) {
    log::info(
        fmt::format("gradient set '{}': the orders in which gradients become ready lead to "
                    "different buckets on different ranks; the first plan stays",
                    group.name()));
  }
  group.iterations().vote_ended();
}

}  // namespace kolo
