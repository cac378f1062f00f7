#include "trainer/checkpoint/checkpointer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "comm/base/error.h"
#include "comm/base/log.h"
#include "comm/base/output_file.h"

namespace kolo::trainer {
namespace {

/// Pause of a rank that waits for its own thread, at the end of training.
constexpr std::chrono::milliseconds kPatience{2};

/// Empty, or why rank 0 cannot write there.
std::string prepare(const RunFolder& folder) {
  try {
    std::error_code error;
    std::filesystem::create_directories(folder.path(), error);
    if (error) return "cannot create " + folder.path().string() + ": " + error.message();
    expect_writable((folder.path() / ".writable").string());
    folder.clear();
    return {};
  } catch (const KoloError& error) {
    return error.error().what;
  }
}

void require_writable(Runtime& runtime, const RunFolder& folder) {
  std::string why;
  if (runtime.rank() == 0) why = prepare(folder);
  std::int64_t fails = why.empty() ? 0 : 1;
  runtime.broadcast("the run's folder", {&fails, 1, DType::kInt64}, 0);
  if (fails == 0) return;
  if (why.empty()) why = "rank 0 cannot write " + folder.path().string();
  throw KoloError({.code = ErrorCode::kIo, .rank = runtime.rank(), .what = why});
}

}  // namespace

Checkpointer::Checkpointer(Runtime& runtime, Options options)
    : runtime_(runtime),
      folder_(std::move(options.folder)),
      keep_(options.keep),
      job_(std::move(options.job)),
      round_(runtime),
      snapshot_(runtime.rank(), runtime.world_size()) {
  require_writable(runtime, folder_);
}

void Checkpointer::begin(std::uint64_t step, std::optional<double> eval_loss, Stateful& state) {
  check(!is_busy(), "a checkpoint begins when the one before has ended");
  snapshot_.clear();
  state.visit_state(snapshot_);
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
  if (round_.is_under_way()) {
    const std::vector<Report> reports = reports_from(round_.take());
    stops = std::ranges::any_of(reports, &Report::wants_stop);
    follow(reports);
  }
  exchange(wants_stop);
  return stops;
}

void Checkpointer::finish() {
  while (is_busy()) {
    if (thread_.valid()) thread_.wait_for(kPatience);
    agree(false);
  }
  if (round_.is_under_way()) round_.take();
  if (thread_.valid()) thread_.wait();
  look_after_thread();
}

void Checkpointer::exchange(bool wants_stop) {
  look_after_thread();
  const std::uint64_t flags = static_cast<std::uint64_t>(phase_) << 1 | (wants_stop ? 1 : 0);
  const std::array<std::uint64_t, AgreementRound::kWords> words = {step_.value_or(0), flags,
                                                                   sum_.bytes, sum_.xxh3};
  round_.begin(words);
}

std::vector<Checkpointer::Report> Checkpointer::reports_from(std::span<const std::uint64_t> words) {
  std::vector<Report> reports;
  for (; !words.empty(); words = words.subspan(AgreementRound::kWords)) {
    reports.push_back({.step = words[0],
                       .phase = static_cast<Phase>(words[1] >> 1),
                       .wants_stop = (words[1] & 1) != 0,
                       .sum = {.bytes = words[2], .xxh3 = words[3]}});
  }
  return reports;
}

void Checkpointer::follow(const std::vector<Report>& reports) {
  const auto count = [&](Phase phase) {
    return std::ranges::count(reports, phase, &Report::phase);
  };
  // What was said before this checkpoint began says nothing about it.
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
    if (!is_busy()) {  // It removed what another rank could not complete.
      log::warn(error.what());
      return;
    }
    log::warn(fmt::format("the checkpoint of step {} is lost, training goes on: {}", *step_,
                          error.what()));
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

}  // namespace kolo::trainer
