#pragma once

#include <cstddef>
#include <vector>

namespace kolo {

/// Sizes of buckets and chunks that a gradient set can travel in.
struct TuneCandidate {
  std::size_t fusion_bytes = 0;
  std::size_t chunk_bytes = 0;

  friend bool operator==(const TuneCandidate&, const TuneCandidate&) = default;
};

struct TuneOptions {
  int warmup_steps = 3;      ///< After each change, not counted.
  int steps = 12;            ///< Counted for each candidate.
  double least_gain = 0.02;  ///< A candidate must be faster by this share of a step, at least.
  int most_alike = 2;        ///< So many in a row that are neither faster nor slower end nothing.
  std::size_t smallest = std::size_t{64} << 10;
  std::size_t largest = std::size_t{64} << 20;
  bool tunes_fusion = true;  ///< Else that of the first candidate is kept; the same for chunks.
  bool tunes_chunks = true;
};

/// Looks for the sizes with which whole training steps take least time, beginning with those of the
/// cost model. It judges steps, not bandwidth: what matters is what a step waits for.
///
///   fusion   x1, x2, x4 ... until it hurts; if nothing has helped: /2, /4 ...   then chunks alike
///   at last  the first candidate and the best once more, one after the other
///
/// What neither helps nor hurts may be a plateau before the slope, so some steps go on over it.
/// A candidate counts as faster if its median is, by more than `least_gain` and by more than the
/// noise of both. The first candidate stays unless the last comparison says so, too: a machine that
/// became faster meanwhile is no merit of the candidate of that time.
///
/// Pure: steps in, decisions out. Rank 0 runs it with the times of the slowest rank and tells
/// the others.
/// Threads: one.
class Autotune {
 public:
  Autotune(TuneCandidate first, TuneOptions options = {});

  /// What the next step should run with.
  const TuneCandidate& current() const { return current_; }
  /// Takes the time of a step that ran with `current()`. Returns whether `current()` has changed.
  bool record(double step_us);
  /// Steps until `current()` may change.
  int steps_left() const {
    return options_.warmup_steps - skipped_ + options_.steps - static_cast<int>(steps_us_.size());
  }

  /// Whether `current()` is new: neither the best so far nor one that is compared again.
  bool explores() const {
    return phase_ != Phase::kFirst && phase_ != Phase::kFirstAgain && phase_ != Phase::kBestAgain &&
           !finished();
  }
  /// Leaves `current()` out without a step, since it is as good as the best: the next one is
  /// further in the same direction. Before: explores.
  void skip();
  /// Gives `current()` up without a step, and all in the same direction. Before: explores.
  void give_up();

  /// Whether `current()` is final.
  bool finished() const { return phase_ == Phase::kFinished; }
  /// The best sizes so far, and the median step with them. Before: the first was measured.
  const TuneCandidate& best() const { return best_.candidate; }
  double step_us() const { return best_.median_us; }
  /// The first sizes, and the median step with them when they were measured last.
  const TuneCandidate& first() const { return first_; }
  double first_step_us() const { return first_again_.median_us; }

 private:
  enum class Phase {
    kFirst,
    kLargerFusion,
    kSmallerFusion,
    kLargerChunks,
    kSmallerChunks,
    kFirstAgain,
    kBestAgain,
    kFinished
  };

  struct Measured {
    TuneCandidate candidate;
    double median_us = 0;
    double noise_us = 0;  ///< Of the median.
  };

  Measured summarise() const;
  bool is_faster(const Measured& a, const Measured& b) const;
  void judge(const Measured& measured);
  void next(Phase phase);
  void compare_or_finish();
  bool step_along(Phase phase, TuneCandidate candidate);

  const TuneOptions options_;
  const TuneCandidate first_;
  Phase phase_ = Phase::kFirst;
  TuneCandidate current_;
  Measured best_;
  Measured first_again_;
  int alike_ = 0;  ///< Candidates in a row that were no faster than the best.
  int skipped_ = 0;
  std::vector<double> steps_us_;
};

}  // namespace kolo
