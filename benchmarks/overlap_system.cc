#include "benchmarks/overlap_system.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "benchmarks/exchange.h"
#include "benchmarks/samples.h"
#include "comm/base/aligned_memory.h"

namespace kolo::bench {
namespace {

std::size_t total(const std::vector<std::size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

class KoloOverlap final : public OverlapSystem {
 public:
  KoloOverlap(Runtime& runtime, const std::vector<std::size_t>& counts, Home home)
      : fusion_bytes_(runtime.options().fusion_bytes),
        memory_(in_arena(home) ? nullptr : allocate_aligned(total(counts) * sizeof(float))),
        gradients_(runtime.register_gradients("model", specs(counts), {.op = ReduceOp::kSum})) {}

  std::string name() const override { return "kolo"; }
  std::string algorithm() const override { return gradients_.plan().algorithm; }
  std::optional<std::size_t> fusion_bytes() const override { return fusion_bytes_; }
  void ready(std::size_t index) override { gradients_.ready(index); }
  void finish() override { gradients_.wait(); }

  void fill(float value) override {
    for (std::size_t i = 0; i < gradients_.size(); ++i) std::ranges::fill(values(i), value);
  }
  std::uint64_t count_other_than(float value) override {
    std::uint64_t others = 0;
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      others += static_cast<std::uint64_t>(
          std::ranges::count_if(values(i), [&](float x) { return x != value; }));
    }
    return others;
  }

 private:
  std::vector<GradientSpec> specs(const std::vector<std::size_t>& counts) {
    std::vector<GradientSpec> specs;
    auto* next = reinterpret_cast<float*>(memory_.get());
    for (std::size_t count : counts) {
      specs.push_back(
          {.name = fmt::format("gradient {}", specs.size()), .shape = {count}, .data = next});
      if (next != nullptr) next += count;
    }
    return specs;
  }
  std::span<float> values(std::size_t index) {
    const BufferView view = gradients_.view(index);
    return {static_cast<float*>(view.data), view.count};
  }

  std::size_t fusion_bytes_;
  AlignedMemory memory_;
  GradientSet gradients_;
};

class BlockingOverlap final : public OverlapSystem {
 public:
  BlockingOverlap(std::string name, std::unique_ptr<AllReduceRun> run, std::size_t count)
      : name_(std::move(name)), run_(std::move(run)), values_(count) {}

  std::string name() const override { return name_; }
  std::string algorithm() const override { return run_->algorithm(); }
  void ready(std::size_t) override {}
  void finish() override { run_->run(); }

  void fill(float value) override {
    std::ranges::fill(values_, value);
    run_->write(values_.data());
  }
  std::uint64_t count_other_than(float value) override {
    run_->read(values_.data());
    return static_cast<std::uint64_t>(
        std::ranges::count_if(values_, [&](float x) { return x != value; }));
  }

 private:
  std::string name_;
  std::unique_ptr<AllReduceRun> run_;
  std::vector<float> values_;
};

/// Median time of a few runs, of the slowest rank.
double probe_us(Runtime& runtime, AllReduceRun& run) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  run.run();
  for (int i = 0; i < 5; ++i) {
    const auto start = Clock::now();
    run.run();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  max_over_ranks(runtime, times);
  return summarise(std::move(times)).median;
}

}  // namespace

std::unique_ptr<OverlapSystem> make_kolo_overlap(Runtime& runtime,
                                                 const std::vector<std::size_t>& counts,
                                                 Home home) {
  return std::make_unique<KoloOverlap>(runtime, counts, home);
}

std::unique_ptr<OverlapSystem> make_blocking_overlap(Runtime& runtime, AllReduceSystem& peer,
                                                     const std::vector<std::size_t>& counts) {
  std::unique_ptr<AllReduceRun> best;
  double best_us = 0;
  const std::vector<float> ones(total(counts), 1.0f);
  for (auto& run : peer.prepare({.bytes = total(counts) * sizeof(float), .home = Home::kUser})) {
    run->write(ones.data());
    const double us = probe_us(runtime, *run);
    if (best && us >= best_us) continue;
    best = std::move(run);
    best_us = us;
  }
  return std::make_unique<BlockingOverlap>(peer.name(), std::move(best), total(counts));
}

}  // namespace kolo::bench
