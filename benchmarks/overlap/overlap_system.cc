#include "benchmarks/overlap/overlap_system.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "benchmarks/common/exchange.h"
#include "benchmarks/common/host_memory.h"
#include "benchmarks/common/samples.h"
#include "comm/base/check.h"

namespace kolo::bench {
namespace {

std::size_t total(const std::vector<std::size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

std::uint64_t count_others(std::span<const float> values, float value) {
  return static_cast<std::uint64_t>(
      std::ranges::count_if(values, [&](float x) { return x != value; }));
}

class KoloOverlap final : public OverlapSystem {
 public:
  KoloOverlap(Runtime& runtime, const std::vector<std::size_t>& counts, Home home)
      : fusion_bytes_(runtime.options().fusion_bytes),
        memory_(in_arena(home) ? HostMemory() : HostMemory(total(counts) * sizeof(float))),
        gradients_(runtime.register_gradients("model", specs(counts),
                                              {.op = ReduceOp::kSum, .compression = "none"})) {}

  std::string name() const override { return "kolo"; }
  std::string algorithm() const override { return gradients_.plan().algorithm; }
  Calls calls() const override { return Calls::kBuckets; }
  std::optional<std::size_t> fusion_bytes() const override { return fusion_bytes_; }
  void ready(std::size_t index) override { gradients_.ready(index); }
  bool await(std::size_t index) override {
    gradients_.wait(index);
    return true;
  }
  void finish() override { gradients_.wait(); }

  void fill(float value) override {
    for (std::size_t i = 0; i < gradients_.size(); ++i) std::ranges::fill(values(i), value);
  }
  std::uint64_t count_other_than(float value) override {
    std::uint64_t others = 0;
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      others += count_others(values(i), value);
    }
    return others;
  }

 private:
  std::vector<GradientSpec> specs(const std::vector<std::size_t>& counts) {
    std::vector<GradientSpec> specs;
    auto* next = reinterpret_cast<float*>(memory_.data());
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
  HostMemory memory_;
  GradientSet gradients_;
};

/// One call for adjacent gradients.
class FlatOverlap final : public OverlapSystem {
 public:
  FlatOverlap(std::string name, std::unique_ptr<CollectiveRun> run, std::size_t count)
      : name_(std::move(name)), run_(std::move(run)), values_(count) {}

  std::string name() const override { return name_; }
  std::string algorithm() const override { return run_->algorithm(); }
  Calls calls() const override { return Calls::kFlat; }
  void ready(std::size_t) override {}
  void finish() override { run_->run(); }

  void fill(float value) override {
    std::ranges::fill(values_, value);
    run_->write(values_.data());
  }
  std::uint64_t count_other_than(float value) override {
    run_->read(values_.data());
    return count_others(values_, value);
  }

 private:
  std::string name_;
  std::unique_ptr<CollectiveRun> run_;
  std::vector<float> values_;
};

/// One call for gradients in separate memory, which is copied to one buffer.
class PackedOverlap final : public OverlapSystem {
 public:
  PackedOverlap(std::string name, std::unique_ptr<CollectiveRun> run, std::size_t count)
      : name_(std::move(name)),
        run_(std::move(run)),
        memory_(count * sizeof(float)),
        gradients_(reinterpret_cast<float*>(memory_.data()), count) {}

  std::string name() const override { return name_; }
  std::string algorithm() const override { return run_->algorithm(); }
  Calls calls() const override { return Calls::kPacked; }
  void ready(std::size_t) override {}
  void finish() override {
    run_->write(gradients_.data());
    run_->run();
    run_->read(gradients_.data());
  }

  void fill(float value) override { std::ranges::fill(gradients_, value); }
  std::uint64_t count_other_than(float value) override { return count_others(gradients_, value); }

 private:
  std::string name_;
  std::unique_ptr<CollectiveRun> run_;
  HostMemory memory_;
  std::span<float> gradients_;
};

/// A call for each gradient. `counts` are those of the runs.
class EachOverlap final : public OverlapSystem {
 public:
  EachOverlap(std::string name, std::vector<std::unique_ptr<CollectiveRun>> runs,
              std::vector<std::size_t> counts)
      : name_(std::move(name)), runs_(std::move(runs)), counts_(std::move(counts)) {}

  std::string name() const override { return name_; }
  /// Of the largest gradient.
  std::string algorithm() const override {
    const auto largest = std::ranges::max_element(counts_) - counts_.begin();
    return runs_[static_cast<std::size_t>(largest)]->algorithm();
  }
  Calls calls() const override { return Calls::kEach; }
  void ready(std::size_t index) override { runs_[index]->run(); }
  void finish() override {}

  void fill(float value) override {
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      const std::vector<float> values(counts_[i], value);
      runs_[i]->write(values.data());
    }
  }
  std::uint64_t count_other_than(float value) override {
    std::uint64_t others = 0;
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      std::vector<float> values(counts_[i]);
      runs_[i]->read(values.data());
      others += count_others(values, value);
    }
    return others;
  }

 private:
  std::string name_;
  std::vector<std::unique_ptr<CollectiveRun>> runs_;
  std::vector<std::size_t> counts_;
};

/// Median time of a few runs, of the slowest rank.
double probe_us(Runtime& runtime, CollectiveRun& run) {
  std::vector<double> times;
  run.run();
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    run.run();
    times.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
            .count());
  }
  max_over_ranks(runtime, times);
  return summarise(std::move(times)).median;
}

/// Makes all-reduces by the fastest variant of a system, found once for each size.
class FastestWays {
 public:
  FastestWays(Runtime& runtime, CollectiveSystem& peer) : runtime_(runtime), peer_(peer) {}

  /// In place, of `count` numbers. Collective.
  std::unique_ptr<CollectiveRun> make(std::size_t count) {
    auto runs = peer_.prepare({.bytes = count * sizeof(float), .home = Home::kUser});
    if (!fastest_.contains(count)) fastest_[count] = find(runs, count);
    return std::move(runs[fastest_[count]]);
  }

 private:
  std::size_t find(const std::vector<std::unique_ptr<CollectiveRun>>& runs, std::size_t count) {
    const std::vector<float> ones(count, 1.0f);
    std::vector<double> times_us;
    for (const auto& run : runs) {
      run->write(ones.data());
      times_us.push_back(probe_us(runtime_, *run));
    }
    return static_cast<std::size_t>(std::ranges::min_element(times_us) - times_us.begin());
  }

  Runtime& runtime_;
  CollectiveSystem& peer_;
  std::map<std::size_t, std::size_t> fastest_;  // Index of the fastest variant, by count.
};

}  // namespace

std::unique_ptr<OverlapSystem> make_kolo_overlap(Runtime& runtime,
                                                 const std::vector<std::size_t>& counts,
                                                 Home home) {
  return std::make_unique<KoloOverlap>(runtime, counts, home);
}

std::unique_ptr<OverlapSystem> make_blocking_overlap(Runtime& runtime, CollectiveSystem& peer,
                                                     const std::vector<std::size_t>& counts,
                                                     Calls calls) {
  FastestWays ways(runtime, peer);
  const std::size_t all = total(counts);
  switch (calls) {
    case Calls::kFlat:
      return std::make_unique<FlatOverlap>(peer.name(), ways.make(all), all);
    case Calls::kPacked:
      return std::make_unique<PackedOverlap>(peer.name(), ways.make(all), all);
    case Calls::kEach: {
      std::vector<std::unique_ptr<CollectiveRun>> runs;
      for (std::size_t count : counts) runs.push_back(ways.make(count));
      return std::make_unique<EachOverlap>(peer.name(), std::move(runs), counts);
    }
    case Calls::kBuckets:
      break;
  }
  check(false, "blocking calls know no buckets");
  return nullptr;
}

}  // namespace kolo::bench
