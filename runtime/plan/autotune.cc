#include "runtime/plan/autotune.h"

#include <algorithm>
#include <cmath>

namespace kolo {
namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

Autotune::Autotune(TuneCandidate first, TuneOptions options)
    : options_(options), first_(first), current_(first) {}

bool Autotune::record(double step_us) {
  if (finished()) return false;
  if (skipped_ < options_.warmup_steps) {
    ++skipped_;
    return false;
  }
  steps_us_.push_back(step_us);
  if (static_cast<int>(steps_us_.size()) < options_.steps) return false;
  const TuneCandidate before = current_;
  judge(summarise());
  steps_us_.clear();
  skipped_ = 0;
  return current_ != before;
}

Autotune::Measured Autotune::summarise() const {
  Measured measured{.candidate = current_, .median_us = median(steps_us_)};
  std::vector<double> deviations;
  for (const double us : steps_us_) deviations.push_back(std::abs(us - measured.median_us));
  // 1.4826 makes the median deviation a standard deviation, 1.2533 that of a mean one of a median.
  measured.noise_us =
      1.4826 * 1.2533 * median(deviations) / std::sqrt(static_cast<double>(steps_us_.size()));
  return measured;
}

bool Autotune::is_faster(const Measured& a, const Measured& b) const {
  constexpr double kSigmas = 2;
  const double noise = kSigmas * std::hypot(a.noise_us, b.noise_us);
  return b.median_us - a.median_us > std::max(noise, options_.least_gain * b.median_us);
}

void Autotune::judge(const Measured& measured) {
  switch (phase_) {
    case Phase::kFirst:
      best_ = first_again_ = measured;
      return next(Phase::kLargerFusion);
    case Phase::kFirstAgain:
      first_again_ = measured;
      phase_ = Phase::kBestAgain;
      current_ = best_.candidate;
      return;
    case Phase::kBestAgain:
      best_ = is_faster(measured, first_again_) ? measured : first_again_;
      current_ = best_.candidate;
      phase_ = Phase::kFinished;
      return;
    default:
      break;
  }
  const bool is_better = is_faster(measured, best_);
  if (is_better) best_ = measured;
  alike_ = is_better ? 0 : alike_ + 1;
  const bool goes_on = is_better || (alike_ <= options_.most_alike && !is_faster(best_, measured));
  if (!goes_on || !step_along(phase_, current_)) give_up();
}

void Autotune::skip() {
  if (!step_along(phase_, current_)) give_up();
}

void Autotune::give_up() {
  alike_ = 0;
  const bool is_fusion = phase_ == Phase::kLargerFusion || phase_ == Phase::kSmallerFusion;
  // What larger sizes have gained, smaller ones would lose again.
  const bool gained_larger = is_fusion ? best_.candidate.fusion_bytes > first_.fusion_bytes
                                       : best_.candidate.chunk_bytes > first_.chunk_bytes;
  if (phase_ == Phase::kLargerFusion && !gained_larger) return next(Phase::kSmallerFusion);
  if (is_fusion) return next(Phase::kLargerChunks);
  if (phase_ == Phase::kLargerChunks && !gained_larger) return next(Phase::kSmallerChunks);
  compare_or_finish();
}

/// Goes one step from `candidate` in the phase's direction. Returns false at the end.
bool Autotune::step_along(Phase phase, TuneCandidate candidate) {
  const bool is_fusion = phase == Phase::kLargerFusion || phase == Phase::kSmallerFusion;
  if (!(is_fusion ? options_.tunes_fusion : options_.tunes_chunks)) return false;
  const bool grows = phase == Phase::kLargerFusion || phase == Phase::kLargerChunks;
  std::size_t& size = is_fusion ? candidate.fusion_bytes : candidate.chunk_bytes;
  size = grows ? size * 2 : size / 2;
  if (size < options_.smallest || size > options_.largest) return false;
  phase_ = phase;
  current_ = candidate;
  return true;
}

void Autotune::next(Phase phase) {
  if (step_along(phase, best_.candidate)) return;
  switch (phase) {
    case Phase::kLargerFusion:
      return next(Phase::kSmallerFusion);
    case Phase::kSmallerFusion:
      return next(Phase::kLargerChunks);
    case Phase::kLargerChunks:
      return next(Phase::kSmallerChunks);
    default:
      compare_or_finish();
  }
}

void Autotune::compare_or_finish() {
  current_ = first_;
  phase_ = best_.candidate == first_ ? Phase::kFinished : Phase::kFirstAgain;
}

}  // namespace kolo
