#include "runtime/gradients/gradient_sets.h"

#include <algorithm>
#include <utility>

#include <xxhash.h>

#include "comm/base/log.h"

namespace kolo {

void GradientSets::submit(const std::shared_ptr<GradientSetState>& group) {
  const auto refuse = [&](std::string why) {
    group->fail(coordinator_.in_group(
        {.code = ErrorCode::kUsage, .bucket = group->name(), .what = std::move(why)}));
  };
  const bool is_proposed = std::ranges::any_of(
      proposed_, [&](const auto& item) { return item.second->name() == group->name(); });
  if (is_proposed) {
    return refuse("the registration of a set of this name is not decided yet");
  }
  const auto former = agreed_.find(group->name());
  if (former != agreed_.end() && !former->second->iterations().suspend()) {
    return refuse("the set of this name is in the middle of an iteration; call wait() first");
  }
  activity_.begin(EngineVerb::kPlan, group->name());
  std::optional<GradientDraft> draft;
  try {
    draft = draft_gradients(*group, context_);
  } catch (const KoloError& e) {
    if (!fails_alike(e.error())) throw;  // Otherwise the set fails when all ranks have agreed.
  }
  activity_.begin(EngineVerb::kMark);
  const std::string text = group->describe() + (draft ? describe(*draft) : std::string());
  const ProposalKey key = coordinator_.propose("gradients " + group->name(),
                                               XXH3_64bits(text.data(), text.size()), text, *group);
  proposed_.emplace(key, group);
  if (draft) drafts_.emplace(key, std::move(*draft));
}

void GradientSets::submit(GradientSetState& group, std::size_t bucket) {
  if (!group.failed()) runner_.mark_ready(group.id_of(bucket));
}

bool GradientSets::accept(const Frame& decision) {
  const auto proposal = proposed_.find(decision.key);
  if (proposal == proposed_.end()) {
    const auto vote = undecided_.extract(decision.key);
    if (vote.empty()) return false;
    if (!vote.mapped()->failed()) settle(*vote.mapped(), dense_steps(decision.least));
    return true;
  }
  const std::shared_ptr<GradientSetState> group = proposal->second;
  activity_.begin(EngineVerb::kPlan, group->name());
  try {
    plan(decision.key, group);
  } catch (const KoloError& e) {
    if (!fails_alike(e.error())) throw;
    group->fail(coordinator_.in_group(e.error()));
  }
  proposed_.erase(proposal);
  return true;
}

bool GradientSets::reject(const ProposalKey& rejected, const Error& error) {
  drafts_.erase(rejected);
  auto about = proposed_.extract(rejected);
  if (!about.empty()) {
    const auto former = agreed_.find(about.mapped()->name());
    if (former != agreed_.end()) former->second->iterations().resume();
  } else {
    about = undecided_.extract(rejected);
  }
  if (about.empty()) return false;
  about.mapped()->fail(error);
  return true;
}

void GradientSets::plan(const ProposalKey& key, const std::shared_ptr<GradientSetState>& group) {
  replace(group->name());
  auto draft = drafts_.extract(key);
  plan_gradients(*group, context_,
                 draft ? std::move(draft.mapped()) : draft_gradients(*group, context_));
  agreed_[group->name()] = group;
  coordinator_.acts().did("registered '" + group->name() + "'");
  begin(group);
}

/// Begins the set's first iteration and completes its registration.
void GradientSets::begin(const std::shared_ptr<GradientSetState>& group) {
  if (group->is_open()) {
    const std::weak_ptr<GradientSetState> measured = group;
    group->measure_dense_steps(step_clock_, [this, measured] { cast_vote(measured.lock()); });
  } else {
    group->iterations().begin();
  }
  group->registration().complete();
}

/// Starts the vote on the measured times. Its result is the least value of all ranks. All ranks
/// decide alike, because this result and the link costs are equal on all ranks.
void GradientSets::cast_vote(const std::shared_ptr<GradientSetState>& group) {
  const ProposalKey key =
      coordinator_.vote("steps " + group->name(), to_word(group->iterations().take_dense_steps()),
                        "the step times of gradient set '" + group->name() + "'", *group);
  undecided_.emplace(key, group);
}

void GradientSets::settle(GradientSetState& group, const DenseSteps& measured) {
  if (group.settle(measured, context_.grid, context_.costs)) replan_gradients(group, context_);
  if (context_.transport.rank() == 0) {
    for (const CompressionDecision& decision : group.decisions()) {
      log::info("compression, settled: " + to_string(decision));
    }
  }
  group.iterations().vote_ended();
}

void GradientSets::replace(const std::string& name) {
  const auto former = agreed_.find(name);
  if (former == agreed_.end()) return;
  if (former->second->failed()) {
    // Buckets other than the rejected one may still run, so on all ranks the set keeps all buckets.
    failed_.push_back(std::move(former->second));
  } else {
    former->second->fail(coordinator_.in_group(
        {.code = ErrorCode::kUsage,
         .bucket = name,
         .what = "this gradient set was replaced by a later registration of its name; use the new "
                 "one"}));
    remove_gradients(*former->second, context_.buckets);
  }
  agreed_.erase(former);
}

std::optional<std::string> GradientSets::marked() const {
  for (const auto& [name, group] : agreed_) {
    if (group->iterations().is_marked()) return name;
  }
  return std::nullopt;
}

bool GradientSets::is_idle() const {
  return proposed_.empty() && std::ranges::none_of(agreed_, [](const auto& item) {
           return item.second->iterations().in_flight();
         });
}

bool GradientSets::move_stand_ins() {
  bool is_idle = true;
  for (const auto& [name, group] : agreed_) {
    for (const std::size_t bucket : group->move_stand_in()) submit(*group, bucket);
    is_idle &= !group->stands_in();
  }
  return is_idle;
}

bool GradientSets::awaits_device() const {
  return std::ranges::any_of(agreed_, [](const auto& item) { return item.second->awaits_check(); });
}

void GradientSets::fail_all(const Error& error) noexcept {
  undecided_.clear();
  for (auto& [key, group] : proposed_) group->fail(error);
  for (auto& [name, group] : agreed_) group->fail(error);
}

void GradientSets::stop_all() noexcept {
  for (auto& [name, group] : agreed_) group->iterations().stop();
  for (auto& group : failed_) group->iterations().stop();
}

}  // namespace kolo
