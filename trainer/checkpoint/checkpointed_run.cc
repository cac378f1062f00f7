#include "trainer/checkpoint/checkpointed_run.h"

#include <utility>

#include <fmt/format.h>

#include "comm/base/log.h"

namespace kolo::trainer {

CheckpointedRun::CheckpointedRun(Runtime& runtime, Options options, Stateful& state)
    : state_(state),
      every_(options.every),
      wants_stop_(std::move(options.wants_stop)),
      resumed_step_(options.resumed_step),
      checkpointer_(runtime, std::move(options.checkpoints)) {}

bool CheckpointedRun::after_step(std::uint64_t step, std::optional<double> eval_loss) {
  if (checkpointer_.agree(wants_stop_())) return true;
  if (every_ == 0 || step % every_ != 0) return false;
  if (checkpointer_.is_busy()) {
    log::info(fmt::format("no checkpoint of step {}: the one before is still being written", step));
  } else {
    checkpointer_.begin(step, eval_loss, state_);
  }
  return false;
}

bool CheckpointedRun::save_last(std::uint64_t step, std::optional<double> eval_loss) {
  checkpointer_.finish();
  if (step == resumed_step_ || step == checkpointer_.completed_step()) return true;
  checkpointer_.begin(step, eval_loss, state_);
  checkpointer_.finish();
  return checkpointer_.completed_step() == step;
}

}  // namespace kolo::trainer
