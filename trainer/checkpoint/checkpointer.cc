#include "trainer/checkpoint/checkpointer.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <exception>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "comm/base/error.h"
#include "comm/base/log.h"
#include "comm/base/output_file.h"
#include "trainer/errors.h"

namespace kolo::trainer {
namespace {

/// Interval at which a rank polls its writer thread at the end of training.
constexpr std::chrono::milliseconds kPatience{2};

/// Returns why rank 0 cannot write to the folder; empty if it can. Then `lock` keeps others out.
std::string prepare(const RunFolder& folder, RunLock& lock) {
  try {
    std::error_code error;
    std::filesystem::create_directories(folder.path(), error);
    if (error) return "cannot create " + folder.path().string() + ": " + error.message();
    expect_writable((folder.path() / ".writable").string());
    lock = RunLock(folder);
    folder.clear();
    return {};
  } catch (const KoloError& error) {
    return error.error().what;
  }
}

void require_writable(Runtime& runtime, const RunFolder& folder, RunLock& lock) {
  std::string why;
  if (runtime.rank() == 0) why = prepare(folder, lock);
  std::int64_t fails = why.empty() ? 0 : 1;
  runtime.broadcast("the run's folder", {&fails, 1, DType::kInt64}, 0).wait();
  if (fails == 0) return;
  if (why.empty()) why = "rank 0 cannot write " + folder.path().string();
  throw KoloError({.code = ErrorCode::kIo, .rank = runtime.rank(), .what = why});
}

/// Broadcasts rank 0's `step`. Only rank 0 reads the folder, because nodes may see a shared file
/// system differently. Collective.
std::optional<std::uint64_t> step_of_rank_0(Runtime& runtime, std::optional<std::uint64_t> step) {
  std::int64_t value = step ? static_cast<std::int64_t>(*step) : -1;
  runtime.broadcast("the checkpoint to resume from", {&value, 1, DType::kInt64}, 0).wait();
  if (value < 0) return std::nullopt;
  return static_cast<std::uint64_t>(value);
}

/// The result of opening a checkpoint on all ranks.
struct Opened {
  std::unique_ptr<SavedState> saved;  ///< The checkpoint; null unless all ranks could open it.
  std::string trouble;                ///< This rank's error; empty if there was none.
};

Opened open(Runtime& runtime, const std::filesystem::path& checkpoint) {
  Opened opened;
  try {
    opened.saved = std::make_unique<SavedState>(checkpoint, runtime.rank(), runtime.world_size());
  } catch (const KoloError& error) {
    if (error.error().code != ErrorCode::kData) throw;
    opened.trouble = error.error().what;
  }
  std::int64_t troubles = opened.saved == nullptr ? 1 : 0;
  runtime.all_reduce("ranks that cannot resume", {&troubles, 1, DType::kInt64}).wait();
  if (troubles > 0) opened.saved.reset();
  return opened;
}

Opened open_newest(Runtime& runtime, const RunFolder& folder) {
  std::vector<std::uint64_t> steps;
  if (runtime.rank() == 0) steps = folder.steps();
  std::string newest;  // the newest checkpoint, and why it cannot be read
  for (std::size_t i = 0;; ++i) {
    const auto step =
        step_of_rank_0(runtime, i < steps.size() ? std::optional(steps[i]) : std::nullopt);
    if (!step && i == 0) return {};
    if (!step) {
      throw_data_error(folder.path(),
                       fmt::format("none of its checkpoints can be read; the newest is of step {}; "
                                   "put a whole one back, or name another --run",
                                   newest));
    }
    Opened opened = open(runtime, folder.checkpoint(*step));
    if (opened.saved != nullptr) return opened;
    if (i == 0) {
      newest = fmt::format("{}: {}", *step,
                           opened.trouble.empty() ? "another rank cannot read it" : opened.trouble);
    }
    if (!opened.trouble.empty()) {
      log::warn(
          fmt::format("{} is passed over: {}", folder.checkpoint(*step).string(), opened.trouble));
    }
  }
}

Opened open_path(Runtime& runtime, const std::filesystem::path& checkpoint) {
  Opened opened = open(runtime, checkpoint);
  if (opened.saved != nullptr) return opened;
  if (opened.trouble.empty()) throw_data_error(checkpoint, "another rank cannot read it");
  throw KoloError({.code = ErrorCode::kData, .what = opened.trouble});
}

void require_no_checkpoints(Runtime& runtime, const RunFolder& folder) {
  std::optional<std::uint64_t> newest;
  if (runtime.rank() == 0) {
    const std::vector<std::uint64_t> steps = folder.steps();
    if (!steps.empty()) newest = steps.front();
  }
  newest = step_of_rank_0(runtime, newest);
  if (!newest) return;
  throw_config_error(
      fmt::format("--run {}: it holds checkpoints of another run, the newest of step {}; go on "
                  "with that run by "
                  "--resume auto, or name another folder",
                  folder.path().string(), *newest));
}

}  // namespace

Checkpointer::Checkpointer(Runtime& runtime, Options options, Stateful& state)
    : runtime_(runtime),
      folder_(std::move(options.folder)),
      keep_(options.keep),
      job_(std::move(options.job)),
      every_(options.every),
      wants_stop_(std::move(options.wants_stop)),
      state_(state),
      all_(static_cast<std::size_t>(runtime.world_size())),
      snapshot_(runtime.rank(), runtime.world_size()) {
  require_writable(runtime, folder_, lock_);
}

void Checkpointer::begin(std::uint64_t step, std::optional<double> eval_loss) {
  check(!is_busy(), "a checkpoint begins when the one before has ended");
  snapshot_.clear();
  state_.visit_state(snapshot_);
  step_ = step;
  eval_loss_ = eval_loss;
  phase_ = Phase::kWriting;
  thread_ = std::async(std::launch::async, [this, step] {
    const std::filesystem::path partial = folder_.partial(step);
    folder_.create_partial(step);
    const FileSum sum =
        write_safetensors(partial / rank_file_name(runtime_.rank()), snapshot_.tensors(),
                          {{"format", "kolo-checkpoint"}, {"step", std::to_string(step)}});
    sync_folder(partial);
    return sum;
  });
}

bool Checkpointer::agree(bool wants_stop) {
  bool stops = false;
  if (exchange_) {
    stops = end_exchange();
    follow(all_);
  }
  begin_exchange(wants_stop);
  return stops;
}

bool Checkpointer::finish() {
  bool stops = false;
  while (is_busy()) {
    if (thread_.valid()) thread_.wait_for(kPatience);
    stops |= agree(false);
  }
  if (exchange_) stops |= end_exchange();
  if (thread_.valid()) thread_.wait();
  look_after_thread();
  return stops;
}

void Checkpointer::begin_exchange(bool wants_stop) {
  look_after_thread();
  mine_ = {.step = step_.value_or(0),
           .phase = phase_,
           .wants_stop = wants_stop ? std::uint64_t{1} : std::uint64_t{0},
           .sum = sum_};
  const BufferView all{all_.data(), kWords * all_.size(), DType::kInt64};
  exchange_ = runtime_.all_gather("checkpoints", {{&mine_, kWords, DType::kInt64}, all});
}

bool Checkpointer::end_exchange() {
  exchange_->wait();
  exchange_.reset();
  return std::ranges::any_of(all_, [](const Report& report) { return report.wants_stop != 0; });
}

void Checkpointer::follow(const std::vector<Report>& reports) {
  const auto count = [&](Phase phase) {
    return std::ranges::count(reports, phase, &Report::phase);
  };
  // Reports that were sent before this checkpoint began are ignored.
  if (!is_busy() || reports.front().step != *step_ || count(Phase::kWriting) > 0) return;
  if (reports.front().phase == Phase::kPublished) {
    end(true);
  } else if (count(Phase::kFailed) > 0) {
    end(false);
  } else if (reports.front().phase == Phase::kWritten && runtime_.rank() == 0) {
    publish(reports);
  }
}

void Checkpointer::look_after_thread() {
  if (!thread_.valid() || thread_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    return;
  }
  try {
    sum_ = thread_.get();
    if (is_busy()) phase_ = phase_ == Phase::kPublishing ? Phase::kPublished : Phase::kWritten;
  } catch (const std::exception& error) {
    if (!is_busy()) {  // the thread was removing a failed checkpoint
      log::warn(error.what());
      return;
    }
    if (lost_step_ != step_) {
      log::warn(fmt::format("the checkpoint of step {} is lost{}: {}", *step_,
                            is_last_ ? "" : ", training goes on", error.what()));
    }
    lost_step_ = step_;
    phase_ = Phase::kFailed;
  }
}

void Checkpointer::publish(const std::vector<Report>& reports) {
  Manifest manifest{.step = *step_, .job = job_, .eval_loss = eval_loss_, .files = {}};
  for (const Report& report : reports) {
    const auto rank = static_cast<int>(manifest.files.size());
    manifest.files.push_back({.name = rank_file_name(rank), .sum = report.sum});
  }
  phase_ = Phase::kPublishing;
  thread_ = std::async(std::launch::async, [this, manifest = std::move(manifest)] {
    folder_.publish(manifest);
    try {
      folder_.prune(manifest.step, keep_);
    } catch (const KoloError& error) {
      log::warn(fmt::format("old checkpoints stay: {}", error.what()));
    }
    return FileSum{};
  });
}

void Checkpointer::end(bool is_complete) {
  const std::uint64_t step = *step_;
  step_.reset();
  phase_ = Phase::kIdle;
  if (is_complete) {
    completed_step_ = step;
  } else if (runtime_.rank() == 0) {
    thread_ = std::async(std::launch::async, [this, step] {
      folder_.remove_partial(step);
      return FileSum{};
    });
  }
}

bool Checkpointer::after_step(std::uint64_t step, std::optional<double> eval_loss) {
  if (agree(wants_stop_())) return true;
  if (every_ == 0 || step % every_ != 0) return false;
  if (is_busy()) {
    log::info(fmt::format("no checkpoint of step {}: the one before is still being written", step));
  } else {
    begin(step, eval_loss);
  }
  return false;
}

bool Checkpointer::save_last(std::uint64_t step, std::optional<double> eval_loss) {
  is_last_ = true;
  finish();
  if (step == completed_step_) return true;
  // If an earlier attempt at this step has failed, rank 0 has removed it before it takes part in
  // this exchange, and no rank writes again before.
  begin_exchange(false);
  end_exchange();
  begin(step, eval_loss);
  finish();
  return completed_step_ == step;
}

std::optional<std::filesystem::path> resume(Runtime& runtime, const ResumeOptions& options,
                                            Stateful& state) {
  const RunFolder folder(options.run);
  if (options.choice == "no") {
    if (!options.run.empty()) require_no_checkpoints(runtime, folder);
    return std::nullopt;
  }
  const Opened opened =
      options.choice == "auto" ? open_newest(runtime, folder) : open_path(runtime, options.choice);
  if (opened.saved == nullptr) return std::nullopt;
  SavedState& saved = *opened.saved;
  const std::string other = describe_other_job(saved.manifest().job, options.job);
  if (!other.empty()) {
    throw_config_error(
        fmt::format("{}: it belongs to another job: {}", saved.path().string(), other));
  }
  state.visit_state(saved);
  // A rank of a split model restores some of the pieces; a piece is left if no rank has restored
  // it.
  std::vector<std::uint8_t> left = saved.left();
  runtime.all_reduce("pieces left", {left.data(), left.size(), DType::kUInt8}, ReduceOp::kMin)
      .wait();
  saved.require_none(left);
  return saved.path();
}

StopSignals::StopSignals() {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGTERM);
  sigaddset(&signals_, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &signals_, &mask_before_);
}

StopSignals::~StopSignals() {
  has_come();
  pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
}

bool StopSignals::has_come() {
  const timespec no_time{};
  while (sigtimedwait(&signals_, nullptr, &no_time) > 0) has_come_ = true;
  return has_come_;
}

}  // namespace kolo::trainer
