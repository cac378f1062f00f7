#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace kolo::test {

/// Makes arbitrary interleavings of ranks that share one thread. Each step polls one rank, drawn by
/// a seeded generator, so equal seeds give equal runs.
class SeededScheduler {
 public:
  using Pollable = std::function<bool()>;

  SeededScheduler(std::uint64_t seed, std::vector<Pollable> pollables)
      : seed_(seed), generator_(seed), pollables_(std::move(pollables)) {}

  /// Polls until `done` returns true; returns the number of polls. Errors: std::runtime_error
  /// naming the seed after `step_limit` polls.
  std::size_t run_until(const std::function<bool()>& done, std::size_t step_limit = 1'000'000) {
    std::size_t steps = 0;
    for (; !done(); ++steps) {
      if (steps == step_limit) {
        throw std::runtime_error("seed " + std::to_string(seed_) + ": not done after " +
                                 std::to_string(step_limit) + " steps");
      }
      pollables_[generator_() % pollables_.size()]();
    }
    return steps;
  }

 private:
  std::uint64_t seed_;
  std::mt19937_64 generator_;
  std::vector<Pollable> pollables_;
};

}  // namespace kolo::test
