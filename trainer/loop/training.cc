#include "trainer/loop/training.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trainer/checkpoint/checkpointed_run.h"
#include "trainer/checkpoint/resume.h"
#include "trainer/checkpoint/run_folder.h"
#include "trainer/config_error.h"
#include "trainer/data/data_loader.h"
#include "trainer/data/evenly_spread.h"
#include "trainer/divergence.h"
#include "trainer/loop/agreement.h"
#include "trainer/loop/evaluator.h"
#include "trainer/loop/gradient_dtype.h"
#include "trainer/loop/make_loader.h"
#include "trainer/loop/run_options.h"
#include "trainer/loop/saved_curve.h"
#include "trainer/loss/loss.h"
#include "trainer/optimizer/lr_schedule.h"
#include "trainer/precision/precision.h"

namespace kolo::trainer {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double milliseconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

LrSchedule make_schedule(const Config& config, int ranks, LrFall fall, std::size_t total_steps) {
  const float lr = peak_lr(config, ranks);
  return {.peak_lr = lr,
          .final_lr = lr * config.final_lr_share,
          .warmup_steps = config.warmup_steps,
          .total_steps = total_steps,
          .fall = fall};
}

/// One job in progress.
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
        total_steps_(total_steps(config, task.data.train->size(), runtime.world_size())),
        held_out_(*task.data.held_out,
                  evaluation_samples(config, task.data.held_out->size(),
                                     std::min(evaluation_interval(), total_steps_),
                                     runtime.world_size())),
        held_out_loader_(make_held_out_loader(config, runtime, held_out_)),
        schedule_(make_schedule(config, runtime.world_size(), schedule.fall, total_steps_)),
        choices_(choices()) {}

  std::optional<Summary> run(const std::function<bool()>& wants_stop) {
    require_resumable(config_, runtime_, learner_);
    if (has_checkpoints(config_)) resume_from_checkpoint();
    if (!config_.run.empty()) begin_checkpoints(wants_stop);
    begin_ = Clock::now();
    for (TrainingListener* listener : listeners_) listener->begin(step_);
    if (held_out_.size() < task_.data.held_out->size()) {
      note(fmt::format("evaluations take {} of {} held-out samples; --eval-samples changes that",
                       held_out_.size(), task_.data.held_out->size()));
    }
    while (step_ < total_steps_ && !has_reached_target()) {
      if (config_.stop_after && step_ >= *config_.stop_after) {
        save_and_stop("as --stop-after says");
        return std::nullopt;
      }
      train_one_step();
      if (step_ % config_.log_every == 0 || is_evaluation_due()) log_interval();
      if (is_evaluation_due()) evaluate_now();
      if (checkpoints_ && checkpoints_->after_step(step_, new_eval_loss())) {
        save_and_stop("by a signal");
        return std::nullopt;
      }
    }
    const bool is_saved = !checkpoints_ || checkpoints_->save_last(step_, new_eval_loss());
    learner_.begin_evaluation();  // and keeps those weights
    Summary summary = summarize();
    summary.is_saved = is_saved;
    return summary;
  }

 private:
  bool has_reached_target() const {
    if (!config_.target || curve_.empty() || !curve_.back().eval_metric) return false;
    const double value = *curve_.back().eval_metric;
    return task_.metric.is_higher_better ? value >= *config_.target : value <= *config_.target;
  }

  std::size_t evaluation_interval() const {
    return config_.eval_every > 0 ? config_.eval_every : train_loader_.steps_per_epoch();
  }

  bool is_evaluation_due() const {
    return step_ % evaluation_interval() == 0 || step_ == total_steps_ ||
           step_ == config_.stop_after;
  }

  void resume_from_checkpoint() {
    const auto checkpoint = resume(runtime_,
                                   {.run = config_.run,
                                    .choice = config_.resume,
                                    .job = job_identity(config_, runtime_, task_)},
                                   *this);
    if (!checkpoint) return;
    first_step_ = step_;
    const std::filesystem::path in_run = RunFolder(config_.run).checkpoint(step_);
    if (checkpoint->lexically_normal() == in_run.lexically_normal()) resumed_step_ = step_;
    if (step_ > total_steps_ || (step_ == total_steps_ && !new_eval_loss())) {
      throw_config_error(
          fmt::format("{}: it is of step {}, and this job ends at step {}: name more by --steps or "
                      "--epochs",
                      checkpoint->string(), step_, total_steps_));
    }
    note(fmt::format("resumed at step {} from {}", step_, checkpoint->string()));
  }

  void begin_checkpoints(const std::function<bool()>& wants_stop) {
    CheckpointedRun::Options options{.checkpoints = {.folder = config_.run,
                                                     .keep = config_.keep,
                                                     .job = job_identity(config_, runtime_, task_)},
                                     .every = config_.checkpoint_every,
                                     .resumed_step = resumed_step_,
                                     .wants_stop = wants_stop};
    Stateful& state = *this;
    checkpoints_.emplace(runtime_, std::move(options), state);
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

  /// Empty unless held-out data was evaluated after this step.
  std::optional<double> new_eval_loss() const {
    if (curve_.empty() || curve_.back().step != step_) return std::nullopt;
    return curve_.back().eval_loss;
  }

  void visit_state(StateVisitor& visitor) override {
    std::uint64_t step = step_;
    std::uint64_t skipped_steps = skipped_steps_;
    visitor.shared("training.step", step);
    visitor.shared("training.skipped_steps", skipped_steps);
    visitor.shared("training.loss", train_loss_);
    // Clocks of ranks differ, so the time goes with the curve, from one rank.
    std::vector<double> history = numbers_of(curve_);
    history.push_back(seconds_before_ + (step_ > first_step_ ? training_seconds() : 0.0));
    visitor.shared("training.history", history);
    if (visitor.is_restoring()) {
      step_ = step;
      skipped_steps_ = skipped_steps;
      curve_ = curve_of(history);
      seconds_before_ = history.empty() ? 0.0 : history.back();
    }
    learner_.state()->visit_state(visitor);
  }

  void train_one_step() {
    const Clock::time_point begin = Clock::now();
    const std::size_t steps_per_epoch = train_loader_.steps_per_epoch();
    const std::uint64_t sent_before = runtime_.network_bytes_sent();
    std::size_t global_samples = 0;
    for (std::size_t pass = 0; pass < config_.accumulation; ++pass) {
      const Batch batch =
          train_loader_.load(step_ / steps_per_epoch, step_ % steps_per_epoch, pass);
      global_samples = batch.global_samples;
      learner_.forward_backward(batch, row_weight(batch));
    }
    lr_ = schedule_.at(step_);
    const StepReport report = learner_.finish(lr_);
    wire_bytes_ += runtime_.network_bytes_sent() - sent_before;
    gradient_norm_ = report.gradient_norm;
    if (report.is_skipped) ++skipped_steps_;
    ++step_;
    samples_ += global_samples;

    const double exposed_ms = milliseconds(report.exposed);
    const double step_ms = milliseconds(Clock::now() - begin);
    step_ms_.push_back(step_ms);
    exposed_ms_.push_back(exposed_ms);
    compute_ms_.push_back(step_ms - exposed_ms);
    interval_ms_ += step_ms;
    interval_exposed_ms_ += exposed_ms;
    training_ms_ += step_ms;
    interval_samples_ += global_samples;
    ++interval_steps_;
  }

  /// With which the averages of gradients are those over all rows, even when the last step deals
  /// unequal parts: averages are over ranks, or where ranks may join over samples.
  float row_weight(const Batch& batch) const {
    const bool is_own = config_.uneven == "join";
    const std::size_t samples = is_own ? batch.rank_samples : batch.global_samples;
    // Where some rows have no target, the rows are those that are expected to have one.
    const double rows = static_cast<double>(samples) * task_.targets_per_sample();
    return static_cast<float>((is_own ? 1 : runtime_.world_size()) / rows);
  }

  std::string choices() const {
    std::string text;
    for (const CompressionDecision& decision : learner_.plan().compression_decisions) {
      text += (text.empty() ? "compression: " : "\ncompression: ") + to_string(decision);
    }
    return text;
  }

  void note(const std::string& text) {
    for (TrainingListener* listener : listeners_) listener->note(text);
  }

  // The runtime decides about "auto" after some steps.
  void note_choices() {
    const std::string text = choices();
    if (text == choices_) return;
    choices_ = text;
    note(text);
  }

  void log_interval() {
    const LossSums sums = sum_over_ranks(runtime_, "training loss", learner_.take_sums());
    train_loss_ = sums.loss / sums.rows;
    require_finite("training", train_loss_);
    curve_.push_back({.step = step_,
                      .seconds = seconds_before_ + training_seconds(),
                      .train_loss = train_loss_,
                      .eval_loss = std::nullopt,
                      .eval_metric = std::nullopt});
    if (!listeners_.empty()) {
      note_choices();
      const ProgressReport report = report_interval();
      for (TrainingListener* listener : listeners_) listener->report(report);
    }
    interval_ms_ = 0.0;
    interval_exposed_ms_ = 0.0;
    interval_samples_ = 0;
    interval_steps_ = 0;
  }

  ProgressReport report_interval() const {
    const double step_ms = interval_ms_ / static_cast<double>(interval_steps_);
    return {.step = step_,
            .total_steps = total_steps_,
            .seconds = curve_.back().seconds,
            .train_loss = train_loss_,
            .lr = static_cast<double>(lr_),
            .gradient_norm = gradient_norm_,
            .step_ms = step_ms,
            .rate = rate(interval_samples_, interval_ms_) * task_.targets_per_sample(),
            .exposed_share = interval_exposed_ms_ / interval_ms_,
            .seconds_left = 1e-3 * step_ms * static_cast<double>(total_steps_ - step_),
            .skipped_steps = skipped_steps_};
  }

  // Called after log_interval() of the same step.
  void evaluate_now() {
    const Clock::time_point begin = Clock::now();
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

  /// 0 when nothing was trained, after a resumed job that had ended.
  static double rate(std::size_t samples, double ms) {
    return ms > 0.0 ? 1e3 * static_cast<double>(samples) / ms : 0.0;
  }

  double training_seconds() const { return seconds_since(begin_) - evaluation_s_; }

  Summary summarize() {
    const std::uint64_t hash = learner_.parameters().hash();
    require_equal(runtime_, "the weights after training", hash);
    const Options& options = runtime_.options();
    const PlanSummary plan = learner_.plan();
    const std::size_t steps_here = std::max<std::size_t>(step_ - first_step_, 1);
    std::uint64_t wire_bytes = 0;
    for (const std::uint64_t bytes : gather(runtime_, "wire bytes", wire_bytes_ / steps_here)) {
      wire_bytes += bytes;
    }
    const double samples_per_s = rate(samples_, training_ms_);
    Summary summary{
        .model = config_.model,
        .ranks = runtime_.world_size(),
        .nodes = runtime_.num_nodes(),
        .device = options.device,
        .precision = std::string(to_string(parse_precision(config_.precision))),
        .wire =
            std::string(to_string(options.wire_dtype.value_or(gradient_dtype(config_, options)))),
        .compression = options.compression,
        .algorithm = plan.algorithm,
        .steps = step_,
        .skipped_steps = skipped_steps_,
        .loss_scale = learner_.loss_scale(),
        .epochs = static_cast<double>(step_) / static_cast<double>(train_loader_.steps_per_epoch()),
        .train_loss = train_loss_,
        .eval_loss = curve_.back().eval_loss.value(),
        .metric = task_.metric,
        .eval_metric = curve_.back().eval_metric.value(),
        .eval_samples = held_out_.size(),
        .eval_bits_per_byte = task_.bits_per_byte(curve_.back().eval_loss.value()),
        .samples_per_s = samples_per_s,
        .tokens_per_s = std::nullopt,
        .step_ms = median(std::move(step_ms_)),
        .compute_ms = median(std::move(compute_ms_)),
        .exposed_comm_ms = median(std::move(exposed_ms_)),
        .data_wait_ms = milliseconds(train_loader_.waited()) / static_cast<double>(steps_here),
        .wire_bytes_per_step = wire_bytes,
        .compression_groups = learner_.compression_stats(),
        .compression_decisions = plan.compression_decisions,
        .fusion_bytes = plan.fusion_bytes,
        .shard = config_.shard,
        .weights_hash = hash,
        .wall_s = seconds_since(begin_),
        .curve = std::move(curve_)};
    if (const auto memory = learner_.memory()) {
      summary.optimizer_bytes = memory->optimizer_bytes;
      summary.gradient_bytes = memory->gradient_bytes;
    }
    if (task_.unit == "tokens") summary.tokens_per_s = samples_per_s * task_.targets_per_sample();
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
  std::string choices_;  // The choices in force, as last printed.

  Clock::time_point begin_;
  std::size_t step_ = 0;
  std::size_t first_step_ = 0;                 // steps that were taken before a checkpoint
  std::optional<std::uint64_t> resumed_step_;  // the same, if the checkpoint is one of this run
  double seconds_before_ = 0.0;                // time that they took
  std::size_t samples_ = 0;
  std::size_t skipped_steps_ = 0;
  std::uint64_t wire_bytes_ = 0;  // of this rank's gradients
  float lr_ = 0.0f;
  double gradient_norm_ = 0.0;
  double train_loss_ = 0.0;
  double training_ms_ = 0.0;
  double evaluation_s_ = 0.0;
  std::vector<double> step_ms_;
  std::vector<double> compute_ms_;
  std::vector<double> exposed_ms_;
  std::vector<CurvePoint> curve_;

  // Since the last log line.
  double interval_ms_ = 0.0;
  double interval_exposed_ms_ = 0.0;
  std::size_t interval_samples_ = 0;
  std::size_t interval_steps_ = 0;

  std::optional<CheckpointedRun> checkpoints_;  // last, since it reads the rest
};

}  // namespace

void require_same_job(const Config& config, Runtime& runtime, const Task& task) {
  require_equal(runtime, common_settings(config));
  require_equal(runtime, "the numbers of training samples", task.data.train->size());
  require_equal(runtime, "the numbers of held-out samples", task.data.held_out->size());
  require_equal(runtime, "the vocabularies", task.data.text_files.hash());
}

std::optional<Summary> train(const Config& config, Runtime& runtime, const Task& task,
                             const LrScheduleEntry& schedule, Learner& learner,
                             std::span<TrainingListener* const> listeners,
                             const std::function<bool()>& wants_stop) {
  return Training(config, runtime, task, schedule, learner, listeners).run(wants_stop);
}

}  // namespace kolo::trainer
