#include "comm/schedule/step_progress.h"

#include <algorithm>

#include "comm/schedule/codec_run.h"
#include "comm/schedule/device_run.h"
#include "comm/schedule/host_run.h"

namespace kolo {
namespace {

constexpr std::size_t kLineBytes = 64;

std::size_t operand_count(const Step& step) {
  return 1 + step.sources.size() + step.mirrors.size();
}

}  // namespace

std::size_t moved_bytes(const KernelPiece& piece, std::size_t element_bytes) {
  return piece.count * element_bytes * operand_count(*piece.step);
}

void append_pieces(const KernelPiece& whole, std::size_t element_bytes,
                   std::vector<KernelPiece>& pieces) {
  const std::size_t bytes = kPieceBytes / operand_count(*whole.step) / kLineBytes * kLineBytes;
  const std::size_t longest = std::max(bytes, kLineBytes) / element_bytes;
  const std::size_t end = whole.first + whole.count;
  for (std::size_t first = whole.first; first < end; first += longest) {
    pieces.push_back({whole.step, first, std::min(longest, end - first)});
  }
}

namespace {

/// Whether the step exposes a contribution, or completes an exposed result.
bool is_handover(const Step& kernel) {
  return kernel.target.region == Region::kExposedInput ||
         (kernel.kind == StepKind::kUnpack && kernel.sources[0].region == Region::kExposedResult);
}

}  // namespace

StepProgress::StepProgress(const Schedule& schedule)
    : messages(schedule.steps.size()),
      kernels(schedule.steps.size()),
      launches(schedule.steps.size()),
      schedule_(schedule),
      predecessors_(schedule.steps.size()),
      missing_(schedule.steps.size()),
      successors_(schedule.steps.size()),
      enqueue_successors_(schedule.steps.size()),
      on_device_(schedule.steps.size()) {
  for (StepId id = 0; id < schedule.steps.size(); ++id) {
    const Step& step = schedule.steps[id];
    on_device_[id] = DeviceRun::runs(schedule, step);
    device_steps_ += on_device_[id] ? 1U : 0U;
    predecessors_[id] = static_cast<std::uint32_t>(step.after.size());
    for (StepId earlier : step.after) {
      const bool ordered = on_device_[earlier] && on_device_[id];
      (ordered ? enqueue_successors_ : successors_)[earlier].push_back(id);
    }
  }
}

void StepProgress::begin() {
  const bool has_end = schedule_.layout.is_on_device();
  remaining_ = schedule_.steps.size() + (has_end ? 1 : 0);
  to_enqueue_ = device_steps_;
  missing_ = predecessors_;
  messages.clear();
  kernels.clear();
  launches.clear();
  for (StepId id = 0; id < schedule_.steps.size(); ++id) {
    if (missing_[id] == 0) release(id);
  }
}

void StepProgress::complete(StepId step) {
  --remaining_;
  for (StepId later : successors_[step]) {
    if (--missing_[later] == 0) release(later);
  }
}

void StepProgress::enqueue(StepId step, bool is_tracked) {
  if (!is_tracked) --remaining_;
  --to_enqueue_;
  for (StepId later : enqueue_successors_[step]) {
    if (--missing_[later] == 0) release(later);
  }
}

void StepProgress::release(StepId step) {
  const Step& released = schedule_.steps[step];
  if (on_device_[step]) {
    launches.push(step);
  } else if (HostRun::runs(schedule_, released) || CodecRun::runs(schedule_, released)) {
    kernels.push(step, is_handover(released));
  } else {
    messages.push(step);
  }
}

}  // namespace kolo
