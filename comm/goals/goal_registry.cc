#include "comm/goals/goal_registry.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "comm/base/check.h"
#include "comm/base/nearest_name.h"
#include "comm/goals/goal_price.h"

namespace kolo {
namespace {

constexpr std::string_view kAutoGoal = "auto";

#define KOLO_ADDRESS(name) &goal_algorithms::name,
constexpr const GoalAlgorithm* kGoalEntries[] = {KOLO_GOAL_ALGORITHMS(KOLO_ADDRESS)};
#undef KOLO_ADDRESS

}  // namespace

std::span<const GoalAlgorithm* const> goal_algorithms_of_all() { return kGoalEntries; }

GoalAlgorithmRequest::GoalAlgorithmRequest(std::string_view text) {
  if (text == kAutoGoal) return;
  const auto* const entry = std::ranges::find(kGoalEntries, text, &GoalAlgorithm::name);
  check(entry != std::end(kGoalEntries),
        "algorithm " + describe_unknown(text, goal_algorithm_texts()));
  algorithm_ = *entry;
}

std::vector<std::string> goal_algorithm_texts() {
  std::vector<std::string> texts{std::string(kAutoGoal)};
  for (const GoalAlgorithm* entry : kGoalEntries) texts.emplace_back(entry->name);
  return texts;
}

double predict_us(const GoalAlgorithm& algorithm, const Goal& goal, const BucketLayout& layout,
                  const GoalContext& context) {
  const GoalSize size = size_of(goal, layout);
  const HostLinks links(context.grid, context.options.link_costs, size.bytes);
  return algorithm.predict_us(links, size, context.options);
}

const GoalAlgorithm& resolve_goal_algorithm(const Goal& goal, const BucketLayout& layout,
                                            const GoalContext& context,
                                            const GoalAlgorithmRequest& request) {
  const auto serves = [&](const GoalAlgorithm* each) {
    return each->serves(goal, layout, context.grid);
  };
  const auto us = [&](const GoalAlgorithm* each) {
    return predict_us(*each, goal, layout, context);
  };
  const GoalAlgorithm* const asked = request.algorithm();
  if (asked != nullptr && serves(asked) && std::isfinite(us(asked))) return *asked;
  std::vector<const GoalAlgorithm*> candidates;
  std::ranges::copy_if(kGoalEntries, std::back_inserter(candidates), serves);
  check(!candidates.empty(),
        "only all-reduce and broadcast take tensors that are in place in a bucket");
  if (context.grid.num_nodes() == 1) return *candidates.front();
  return **std::ranges::min_element(candidates, {}, us);
}

}  // namespace kolo
