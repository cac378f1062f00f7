#include "trainer/loop/training.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trainer/checkpoint/checkpointer.h"
#include "trainer/checkpoint/run_folder.h"
#include "trainer/data/data_loader.h"
#include "trainer/data/dataset.h"
#include "trainer/errors.h"
#include "trainer/loop/balance.h"
#include "trainer/loop/job.h"
#include "trainer/loop/step_meter.h"
#include "trainer/loss/loss.h"
#include "trainer/mesh/mesh.h"
#include "trainer/parameter_set.h"

namespace kolo::trainer {
namespace {

using StepClock = std::chrono::steady_clock;

double seconds_since(StepClock::time_point begin) {
  return std::chrono::duration<double>(StepClock::now() - begin).count();
}

/// A training job in progress.
class Training final : private Stateful {
 public:
  Training(const Config& config, Runtime& runtime, const Task& task,
           const LrScheduleEntry& schedule, Learner& learner,
           std::span<TrainingListener* const> listeners)
      : config_(config),
        runtime_(runtime),
        task_(task),
        learner_(learner),
        listeners_(listeners),
        train_loader_(make_training_loader(config, runtime, task)),
        total_steps_(
            total_steps(config, task.data.train->size(), data_ranks(config.mesh, runtime))),
        held_out_(*task.data.held_out,
                  evaluation_samples(config, task.data.held_out->size(),
                                     std::min(evaluation_interval(), total_steps_),
                                     data_ranks(config.mesh, runtime))),
        held_out_loader_(make_held_out_loader(config, runtime, held_out_)),
        schedule_(make_schedule(config, runtime, task, schedule.fall)),
        job_(job_identity(config, runtime, task)),
        choices_(describe_decisions(learner.plan())),
        balance_(runtime, config) {}

  std::optional<Summary> run(const std::function<bool()>& wants_stop) {
    require_possible_target();
    require_resumable(config_, runtime_);
    if (!config_.run.empty()) begin_checkpoints(wants_stop);  // first, because it locks the folder
    if (has_checkpoints(config_)) resume_from_checkpoint();
    begin_ = StepClock::now();
    for (TrainingListener* listener : listeners_) listener->begin(step_);
    if (!balance_.is_even()) deal_out_samples();
    if (held_out_.size() < task_.data.held_out->size()) {
      note(fmt::format("evaluations take {} of {} held-out samples; --eval-samples changes that",
                       held_out_.size(), task_.data.held_out->size()));
    }
    note_padding();
    while (step_ < total_steps_ && !has_reached_target()) {
      if (config_.stop_after && step_ >= *config_.stop_after) {
        save_and_stop("as --stop-after says");
        return std::nullopt;
      }
      train_one_step();
      if (step_ % config_.log_every == 0 || is_evaluation_due()) log_interval();
      if (is_evaluation_due()) evaluate_now();
      if (checkpoints_ && ranks_meet() && save_if_due()) {
        save_and_stop("by a signal");
        return std::nullopt;
      }
    }
    if (config_.target && !has_reached_target()) {
      note(fmt::format("the target {} was not reached", *config_.target));
    }
    const bool is_saved = !checkpoints_ || checkpoints_->save_last(step_, new_eval_loss());
    learner_.begin_evaluation();  // never ended: these weights are the result
    return summarize(is_saved);
  }

 private:
  /// Performs a training step. The last backward pass marks each gradient ready as soon as it is
  /// complete; its average is computed while the pass continues.
  void train_one_step() {
    const StepClock::time_point begin = StepClock::now();
    const std::uint64_t sent_before = network_bytes_sent();
    const std::uint64_t epoch = step_ / train_loader_.steps_per_epoch();
    const std::size_t step_of_epoch = step_ % train_loader_.steps_per_epoch();
    std::size_t samples = 0;
    for (std::size_t pass = 0; pass < config_.accumulation; ++pass) {
      const Batch batch = train_loader_.load(epoch, step_of_epoch, pass);
      learner_.forward_backward(batch, row_weight(config_, runtime_, task_, batch));
      samples = batch.global_samples;
    }
    const Duration computed = StepClock::now() - begin;
    learner_.await_averages();
    const UpdateVerdict verdict = learner_.clip();
    lr_ = schedule_.at(step_);
    StepReport report = learner_.update(lr_, verdict);
    ++step_;
    if (ranks_meet()) report.exposed += learner_.meet();
    gradient_norm_ = report.gradient_norm;
    if (report.is_skipped) ++skipped_steps_;
    meter_.add({.time = StepClock::now() - begin,
                .exposed = report.exposed,
                .passes = computed,
                .waited = report.waited,
                .samples = samples,
                .wire_bytes = network_bytes_sent() - sent_before});
    if (balance_.after_step(computed)) deal_out_samples();
  }

  /// Returns the payload bytes that this rank has sent to other nodes, in all groups.
  std::uint64_t network_bytes_sent() const {
    return runtime_.network_bytes_sent() + learner_.network_bytes_sent();
  }

  void deal_out_samples() {
    train_loader_.take_batches(balance_.batches());
    held_out_loader_.take_batches(balance_.batches());
    learner_.take_batch(balance_.own_batch());
    note("samples of ranks per pass: " + balance_.words());
  }

  /// Errors: KoloError(kConfig) for a target that the metric cannot have.
  void require_possible_target() const {
    if (!config_.target || !task_.metric.is_share) return;
    if (*config_.target > 0.0 && *config_.target <= 1.0) return;
    throw_config_error(fmt::format("--target {}: {} is greater than 0 and at most 1: 0.9 for 90 %",
                                   *config_.target, task_.metric.name));
  }

  /// Says so if a step takes more samples than there are.
  void note_padding() {
    const std::size_t samples = task_.data.train->size();
    const auto ranks = static_cast<std::size_t>(data_ranks(config_.mesh, runtime_));
    if (ranks * config_.batch * config_.accumulation <= samples) return;
    note(
        fmt::format("warning: a step of {} ranks x batch {} x {} passes takes more than the {} "
                    "training samples; the rest is padding, so a smaller --batch is faster",
                    ranks, config_.batch, config_.accumulation, samples));
  }

  bool has_reached_target() const {
    if (!config_.target || curve_.empty() || !curve_.back().eval_metric) return false;
    const double value = *curve_.back().eval_metric;
    return task_.metric.is_higher_better ? value >= *config_.target : value <= *config_.target;
  }

  std::size_t evaluation_interval() const {
    if (config_.eval_every > 0) return config_.eval_every;
    return is_asynchronous(config_) ? total_steps_ : train_loader_.steps_per_epoch();
  }

  bool is_evaluation_due() const {
    return step_ % evaluation_interval() == 0 || step_ == total_steps_ ||
           step_ == config_.stop_after;
  }

  /// Returns whether ranks that go at their own pace wait for each other after this step.
  bool ranks_meet() const {
    return !is_asynchronous(config_) || is_evaluation_due() ||
           (config_.checkpoint_every > 0 && step_ % config_.checkpoint_every == 0);
  }

  void resume_from_checkpoint() {
    const auto checkpoint =
        resume(runtime_, {.run = config_.run, .choice = config_.resume, .job = job_}, *this);
    if (!checkpoint) return;
    first_step_ = step_;
    const std::filesystem::path in_run = RunFolder(config_.run).checkpoint(step_);
    if (checkpoint->lexically_normal() == in_run.lexically_normal()) {
      checkpoints_->resumed_at(step_);
    }
    if (step_ > total_steps_ || (step_ == total_steps_ && !new_eval_loss())) {
      throw_config_error(
          fmt::format("{}: it is of step {}, and this job ends at step {}: name more by --steps or "
                      "--epochs",
                      checkpoint->string(), step_, total_steps_));
    }
    if (step_ < total_steps_ && step_ >= config_.stop_after.value_or(total_steps_) &&
        !has_reached_target()) {
      throw_config_error(
          fmt::format("--stop-after {}: {} is of step {} already: name a later step, or leave the "
                      "option out to train to the end",
                      *config_.stop_after, checkpoint->string(), step_));
    }
    note(fmt::format("resumed at step {} from {}", step_, checkpoint->string()));
  }

  void begin_checkpoints(const std::function<bool()>& wants_stop) {
    checkpoints_.emplace(runtime_,
                         Checkpointer::Options{.folder = config_.run,
                                               .keep = config_.keep,
                                               .job = job_,
                                               .every = config_.checkpoint_every,
                                               .wants_stop = wants_stop},
                         static_cast<Stateful&>(*this));
  }

  /// Returns whether training must stop. Ranks that meet seldom write the whole checkpoint at once.
  bool save_if_due() {
    const bool stops = checkpoints_->after_step(step_, new_eval_loss());
    return (is_asynchronous(config_) && checkpoints_->finish()) || stops;
  }

  void save_and_stop(const char* reason) {
    if (!checkpoints_->save_last(step_, new_eval_loss())) {
      throw KoloError({.code = ErrorCode::kIo,
                       .rank = runtime_.rank(),
                       .what = fmt::format("training was asked to stop after step {}, and no "
                                           "checkpoint of it could be written",
                                           step_)});
    }
    note(fmt::format("stopped {} after step {}; --resume auto goes on", reason, step_));
  }

  /// The held-out loss after this step; empty if it was not evaluated.
  std::optional<double> new_eval_loss() const {
    if (curve_.empty() || curve_.back().step != step_) return std::nullopt;
    return curve_.back().eval_loss;
  }

  void visit_state(StateVisitor& visitor) override {
    visitor.shared("training.step", step_);
    visitor.shared("training.skipped_steps", skipped_steps_);
    visitor.shared("training.loss", train_loss_);
    // The curve and the training time are saved as shared state, from one rank, because the clocks
    // of ranks differ.
    std::vector<double> history = numbers_of(curve_);
    history.push_back(seconds_before_ + (step_ > first_step_ ? training_seconds() : 0.0));
    visitor.shared("training.history", history);
    if (visitor.is_restoring()) {
      curve_ = curve_of(history);
      seconds_before_ = history.empty() ? 0.0 : history.back();
    }
    learner_.state().visit_state(visitor);
  }

  void note(const std::string& text) {
    for (TrainingListener* listener : listeners_) listener->note(text);
  }

  void log_interval() {
    LossSums sums = learner_.take_sums();
    if (ranks_meet()) sums = sum_over_ranks(runtime_, "training loss", sums);
    if (sums.rows > 0.0) train_loss_ = sums.loss / sums.rows;
    require_finite("training", train_loss_);
    curve_.push_back({.step = step_,
                      .seconds = seconds_before_ + training_seconds(),
                      .train_loss = train_loss_,
                      .eval_loss = std::nullopt,
                      .eval_metric = std::nullopt});
    const StepMeter::Interval interval = meter_.take_interval();
    if (listeners_.empty()) return;
    // The runtime resolves "auto" only after some steps.
    std::string choices = describe_decisions(learner_.plan());
    if (choices != choices_) note(choices_ = std::move(choices));
    const ProgressReport report{
        .step = step_,
        .total_steps = total_steps_,
        .seconds = curve_.back().seconds,
        .train_loss = train_loss_,
        .lr = static_cast<double>(lr_),
        .gradient_norm = gradient_norm_,
        .step_ms = interval.step_ms,
        .rate = interval.samples_per_s * task_.targets_per_sample(),
        .exposed_share = interval.exposed_share,
        .seconds_left = 1e-3 * interval.step_ms * static_cast<double>(total_steps_ - step_),
        .skipped_steps = skipped_steps_};
    for (TrainingListener* listener : listeners_) listener->report(report);
  }

  // Evaluates held-out data. Call after log_interval() of the same step.
  void evaluate_now() {
    const StepClock::time_point begin = StepClock::now();
    const LossSums sums = evaluate(runtime_, learner_, held_out_loader_, [this](std::size_t done) {
      for (TrainingListener* listener : listeners_) {
        listener->evaluating(done, held_out_loader_.steps_per_epoch());
      }
    });
    CurvePoint& point = curve_.back();
    point.eval_loss = sums.loss / sums.rows;
    point.eval_metric = task_.metric.of(sums);
    require_finite("held-out", *point.eval_loss);
    for (TrainingListener* listener : listeners_) {
      listener->evaluation(step_, *point.eval_loss, task_.metric, *point.eval_metric);
    }
    evaluation_s_ += seconds_since(begin);
  }

  void require_finite(std::string_view data, double loss) {
    if (std::isfinite(loss)) return;
    throw_diverged(fmt::format("the loss on {} data after step {} is", data, step_),
                   learner_.parameters());
  }

  double training_seconds() const { return seconds_since(begin_) - evaluation_s_; }

  Summary summarize(bool is_saved) {
    Summary summary = describe_job(config_, runtime_, task_, learner_, std::move(curve_));
    meter_.enter(summary, runtime_);
    summary.steps = step_;
    summary.skipped_steps = skipped_steps_;
    summary.epochs =
        static_cast<double>(step_) / static_cast<double>(train_loader_.steps_per_epoch());
    summary.eval_samples = held_out_.size();
    if (task_.unit == "tokens") {
      summary.tokens_per_s = summary.samples_per_s * task_.targets_per_sample();
    }
    summary.data_wait_ms = to_us(train_loader_.waited()) / 1e3 /
                           static_cast<double>(std::max<std::uint64_t>(step_ - first_step_, 1));
    summary.wall_s = seconds_since(begin_);
    summary.is_saved = is_saved;
    return summary;
  }

  const Config& config_;
  Runtime& runtime_;
  const Task& task_;
  Learner& learner_;
  std::span<TrainingListener* const> listeners_;
  DataLoader train_loader_;
  std::size_t total_steps_;
  EvenlySpread held_out_;
  DataLoader held_out_loader_;
  LrSchedule schedule_;
  const JobIdentity job_;
  std::string choices_;  // the runtime's choices, as last printed
  Balance balance_;
  StepClock::time_point begin_;
  std::uint64_t step_ = 0;
  std::uint64_t first_step_ = 0;  // steps taken before this job resumed
  double seconds_before_ = 0.0;   // training time of these steps, in seconds
  std::uint64_t skipped_steps_ = 0;
  float lr_ = 0.0f;
  double gradient_norm_ = 0.0;
  double train_loss_ = 0.0;
  double evaluation_s_ = 0.0;
  StepMeter meter_;
  std::vector<CurvePoint> curve_;

  std::optional<Checkpointer> checkpoints_;  // declared last, because it reads the other members
};

}  // namespace

std::optional<Summary> train(const Config& config, Runtime& runtime, const Task& task,
                             const LrScheduleEntry& schedule, Learner& learner,
                             std::span<TrainingListener* const> listeners,
                             const std::function<bool()>& wants_stop) {
  try {
    return Training(config, runtime, task, schedule, learner, listeners).run(wants_stop);
  } catch (const DivergedError& diverged) {
    // Ranks that go at their own pace do not find it in the same step.
    if (is_asynchronous(config)) runtime.abort(diverged.error().what);
    throw;
  }
}

}  // namespace kolo::trainer
