#pragma once

#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "tests/integration/job_values.h"

namespace kolo::test {

/// Gradients that some ranks lack, averaged over those that have them and over samples.
class UnevenGradients {
 public:
  explicit UnevenGradients(Runtime& job)
      : job_(job),
        contributing_(make(Divisor::kContributingRanks)),
        samples_(make(Divisor::kSamples)) {}

  void round(int round, Digest& digest) {
    iterate(contributing_, round, digest, [](int) { return 1; });
    const auto samples = [round](int rank) { return (rank + round) % 4; };
    samples_.set_samples(samples(job_.rank()));
    iterate(samples_, round, digest, samples);
  }

 private:
  static constexpr std::size_t kCounts[] = {1, 1000, 300'001, 7, 4096};

  GradientSet make(Divisor divisor) {
    std::vector<GradientSpec> specs;
    for (std::size_t count : kCounts) {
      const bool own = specs.size() % 2 == 0;
      memory_.emplace_back(own ? count : 0);
      specs.push_back({.name = "gradient " + std::to_string(specs.size()),
                       .shape = {count},
                       .data = own ? memory_.back().data() : nullptr});
    }
    return job_.register_gradients(std::string(to_string(divisor)), std::move(specs),
                                   {.divisor = divisor});
  }

  /// Some gradients are absent on all ranks in some rounds.
  static bool is_absent(int rank, int round, std::size_t index) {
    return (static_cast<std::size_t>(rank + round) + index) % 3 == 0;
  }

  template <typename Weight>
  void iterate(GradientSet& set, int round, Digest& digest, Weight weight) {
    for (std::size_t index = set.size(); index-- > 0;) {
      if (is_absent(job_.rank(), round, index)) {
        set.absent(index);
        continue;
      }
      auto* values = static_cast<float*>(set.view(index).data);
      for (std::size_t i = 0; i < set.view(index).count; ++i) {
        values[i] = static_cast<float>(whole(job_.rank(), round, i));
      }
      set.ready(index);
    }
    set.wait();
    for (std::size_t index = 0; index < set.size(); ++index) {
      check(set, index, round, weight);
      digest.add(set.view(index));
    }
  }

  template <typename Weight>
  void check(const GradientSet& set, std::size_t index, int round, Weight weight) const {
    const BufferView view = set.view(index);
    for (std::size_t i = 0; i < view.count; ++i) {
      double sum = 0, weights = 0;
      for (int rank = 0; rank < job_.world_size(); ++rank) {
        if (is_absent(rank, round, index)) continue;
        sum += weight(rank) * whole(rank, round, i);
        weights += weight(rank);
      }
      const double expected = weights > 0 ? sum / weights : 0;
      const double value = static_cast<const float*>(view.data)[i];
      if (std::abs(value - expected) < 1e-5) continue;
      throw WrongSum("uneven gradient " + std::to_string(index) + ": element " + std::to_string(i) +
                     " is wrong");
    }
  }

  Runtime& job_;
  std::vector<std::vector<float>> memory_;
  GradientSet contributing_;
  GradientSet samples_;
};

}  // namespace kolo::test
