#include "runtime/engine/gradient_tuner.h"

#include <utility>

#include <fmt/format.h>

#include "comm/base/log.h"

namespace kolo {
namespace {

std::string size_text(std::size_t bytes) {
  return bytes == 0 ? "auto" : fmt::format("{} KiB", bytes >> 10);
}

std::string text(const TunedSizes& sizes) {
  return fmt::format("fusion_bytes {}, chunk_bytes {}", size_text(sizes.fusion_bytes),
                     size_text(sizes.chunk_bytes));
}

}  // namespace

GradientTuner::GradientTuner(TunedSet set, CalibrationFile file)
    : set_(std::move(set)),
      file_(std::move(file)),
      autotune_(set_.first,
                {.tunes_fusion = set_.tunes_fusion, .tunes_chunks = set_.tunes_chunks}) {}

TunedSizes GradientTuner::sizes(const TuneCandidate& candidate) const {
  const auto unless_first = [](std::size_t bytes, std::size_t first) {
    return bytes == first ? 0 : bytes;
  };
  return {.fusion_bytes = unless_first(candidate.fusion_bytes, set_.first.fusion_bytes),
          .chunk_bytes = unless_first(candidate.chunk_bytes, set_.first.chunk_bytes)};
}

SizeDecision GradientTuner::decide(std::span<const double> steps_us, const WayOfTravel& way_of) {
  if (!std::exchange(has_begun_, true)) {
    if (const auto tuned = file_.tuned(set_.plan)) {
      log::info(fmt::format("gradient set '{}': {} as remembered in {}, {:.3f} ms a step then",
                            set_.name, text(*tuned), file_.path(), tuned->step_us / 1e3));
      return {.fusion_bytes = tuned->fusion_bytes, .chunk_bytes = tuned->chunk_bytes};
    }
    if (!set_.tunes_fusion && !set_.tunes_chunks) return {};
  }
  steps_ += steps_us.size();
  for (const double us : steps_us) autotune_.record(us);
  while (autotune_.explores()) {
    const auto way = way_of(autotune_.current());
    if (!way) {
      autotune_.give_up();
    } else if (way == way_of(autotune_.best())) {
      autotune_.skip();
    } else {
      break;
    }
  }
  if (autotune_.finished()) return settle();
  const TunedSizes next = sizes(autotune_.current());
  log::debug(fmt::format("gradient set '{}': after {} steps tries {}; {:.3f} ms a step so far",
                         set_.name, steps_, text(next), autotune_.step_us() / 1e3));
  // One more than is measured: the last ends with the exchange that follows.
  return {.fusion_bytes = next.fusion_bytes,
          .chunk_bytes = next.chunk_bytes,
          .iterations = static_cast<std::size_t>(autotune_.steps_left()) + 1};
}

SizeDecision GradientTuner::settle() {
  TunedSizes tuned = sizes(autotune_.current());
  tuned.step_us = autotune_.step_us();
  const std::string reason =
      autotune_.current() == set_.first
          ? "no others were faster"
          : fmt::format("{:.3f} ms with the cost model's", autotune_.first_step_us() / 1e3);
  log::info(fmt::format("gradient set '{}': {} after {} steps, {:.3f} ms a step; {}", set_.name,
                        text(tuned), steps_, tuned.step_us / 1e3, reason));
  file_.remember_tuned(set_.plan, tuned);
  return {.fusion_bytes = tuned.fusion_bytes, .chunk_bytes = tuned.chunk_bytes};
}

}  // namespace kolo
