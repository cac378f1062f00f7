#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
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

/// Ranks with data for different numbers of steps, each of a gradient set, a name that all know and
/// one that is new.
class RunsOutOfData {
 public:
  explicit RunsOutOfData(Runtime& job)
      : job_(job),
        gradients_(job.register_gradients(
            "until all have joined",
            {{.name = "small", .shape = {100}}, {.name = "large", .shape = {300'001}}},
            {.op = ReduceOp::kSum})) {}

  void round(int round, Digest& digest) {
    const auto steps = [round](int rank) { return 1 + (rank + round) % 4; };
    for (int step = 0; step < steps(job_.rank()); ++step) {
      std::vector<int> active;
      for (int rank = 0; rank < job_.world_size(); ++rank) {
        if (steps(rank) > step) active.push_back(rank);
      }
      run_step(step, active, "step " + std::to_string(round) + "." + std::to_string(step));
      if (step == 1) expect_refusals(active);
    }
    std::int64_t last[] = {job_.join(), 0};
    last[1] = -last[0];
    job_.all_reduce("last to join", {last, 2, DType::kInt64}, ReduceOp::kMax).wait();
    if (last[0] != -last[1]) throw WrongSum("ranks differ about the last one to join");
    for (std::size_t index = 0; index < gradients_.size(); ++index) {
      digest.add(gradients_.view(index));
    }
  }

 private:
  void run_step(int step, const std::vector<int>& active, const std::string& name) {
    for (std::size_t index = 0; index < gradients_.size(); ++index) {
      const BufferView view = gradients_.view(index);
      fill(static_cast<float*>(view.data), view.count, step);
      gradients_.ready(index);
    }
    for (const std::string& each : {std::string("known"), name}) {
      std::vector<float> values(5000);
      fill(values.data(), values.size(), step);
      job_.all_reduce(each, {values.data(), values.size(), DType::kFloat32}).wait();
      check(values.data(), values.size(), step, active, each);
    }
    gradients_.wait();
    for (std::size_t index = 0; index < gradients_.size(); ++index) {
      const BufferView view = gradients_.view(index);
      check(static_cast<const float*>(view.data), view.count, step, active, "gradient of " + name);
    }
  }

  /// Neither messages of a rank that has joined come, nor groups with it.
  void expect_refusals(const std::vector<int>& active) {
    std::vector<int> all;
    int joined = -1;
    for (int rank = 0; rank < job_.world_size(); ++rank) {
      all.push_back(rank);
      if (!std::ranges::binary_search(active, rank)) joined = rank;
    }
    if (joined < 0) return;
    std::vector<float> large(100'000);
    const BufferView view{large.data(), large.size(), DType::kFloat32};
    expect_refusal([&] { job_.recv(view, joined).wait(); });
    expect_refusal([&] { job_.send(view, joined).wait(); });
    expect_refusal([&] { (void)job_.group(all); });
  }

  template <typename Call>
  static void expect_refusal(const Call& call) {
    try {
      call();
    } catch (const KoloError& e) {
      if (e.error().code == ErrorCode::kMismatch && e.error().verb == "join") return;
      throw;
    }
    throw WrongSum("a rank that has joined takes part in a message or a group");
  }

  void fill(float* values, std::size_t count, int step) const {
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = static_cast<float>(whole(job_.rank(), step, i));
    }
  }

  static void check(const float* values, std::size_t count, int step,
                    const std::vector<int>& active, const std::string& name) {
    for (std::size_t i = 0; i < count; ++i) {
      float sum = 0;
      for (const int rank : active) sum += static_cast<float>(whole(rank, step, i));
      if (values[i] == sum) continue;
      throw WrongSum(name + ": element " + std::to_string(i) + " is wrong");
    }
  }

  Runtime& job_;
  GradientSet gradients_;
};

}  // namespace kolo::test
