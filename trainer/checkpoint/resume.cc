#include "trainer/checkpoint/resume.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "comm/base/error.h"
#include "comm/base/log.h"
#include "trainer/checkpoint/run_folder.h"
#include "trainer/checkpoint/saved_state.h"
#include "trainer/config_error.h"
#include "trainer/data/data_error.h"

namespace kolo::trainer {
namespace {

/// Rank 0 alone reads the folder: views of a shared file system may differ.
std::optional<std::uint64_t> step_of_rank_0(Runtime& runtime, std::optional<std::uint64_t> step) {
  std::int64_t value = step ? static_cast<std::int64_t>(*step) : -1;
  runtime.broadcast("the checkpoint to resume from", {&value, 1, DType::kInt64}, 0);
  if (value < 0) return std::nullopt;
  return static_cast<std::uint64_t>(value);
}

/// A checkpoint opened on all ranks, or why not on this one.
struct Opened {
  std::unique_ptr<SavedState> saved;  ///< Null unless all ranks have it.
  std::string trouble;                ///< Empty if this rank found none.
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
  runtime.all_reduce("ranks that cannot resume", {&troubles, 1, DType::kInt64});
  if (troubles > 0) opened.saved.reset();
  return opened;
}

Opened open_newest(Runtime& runtime, const RunFolder& folder) {
  std::vector<std::uint64_t> steps;
  if (runtime.rank() == 0) steps = folder.steps();
  for (std::size_t i = 0;; ++i) {
    const auto step =
        step_of_rank_0(runtime, i < steps.size() ? std::optional(steps[i]) : std::nullopt);
    if (!step) return {};
    Opened opened = open(runtime, folder.checkpoint(*step));
    if (opened.saved != nullptr) return opened;
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
  saved.require_all_taken();
  return saved.path();
}

}  // namespace kolo::trainer
