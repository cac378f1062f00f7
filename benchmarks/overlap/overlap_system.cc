#include "benchmarks/overlap/overlap_system.h"

#include <algorithm>
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

/// Blocking calls: one for adjacent gradients, one on a buffer into and out of which gradients in
/// separate memory are copied, or one for each gradient. `counts` are those of the runs.
class BlockingOverlap final : public OverlapSystem {
 public:
  BlockingOverlap(std::string name, Calls calls, std::vector<std::unique_ptr<CollectiveRun>> runs,
                  std::vector<std::size_t> counts)
      : name_(std::move(name)),
        calls_(calls),
        runs_(std::move(runs)),
        counts_(std::move(counts)),
        memory_(calls == Calls::kPacked ? HostMemory(counts_[0] * sizeof(float)) : HostMemory()),
        separate_(reinterpret_cast<float*>(memory_.data()), memory_ ? counts_[0] : 0) {}

  std::string name() const override { return name_; }
  /// Of the largest gradient.
  std::string algorithm() const override {
    const auto largest = std::ranges::max_element(counts_) - counts_.begin();
    return runs_[static_cast<std::size_t>(largest)]->algorithm();
  }
  Calls calls() const override { return calls_; }
  void ready(std::size_t index) override {
    if (calls_ == Calls::kEach) runs_[index]->run();
  }
  void finish() override {
    if (calls_ == Calls::kEach) return;
    if (calls_ == Calls::kPacked) runs_[0]->write(separate_.data());
    runs_[0]->run();
    if (calls_ == Calls::kPacked) runs_[0]->read(separate_.data());
  }

  void fill(float value) override {
    std::ranges::fill(separate_, value);
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      const std::vector<float> values(counts_[i], value);
      runs_[i]->write(values.data());
    }
  }
  std::uint64_t count_other_than(float value) override {
    if (calls_ == Calls::kPacked) return count_others(separate_, value);
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
  Calls calls_;
  std::vector<std::unique_ptr<CollectiveRun>> runs_;
  std::vector<std::size_t> counts_;
  HostMemory memory_;
  std::span<float> separate_;
};

/// Index of the fastest of some all-reduces of `count` numbers, by the slowest rank. Collective.
std::size_t fastest_of(Runtime& runtime, const std::vector<std::unique_ptr<CollectiveRun>>& runs,
                       std::size_t count) {
  const std::vector<float> ones(count, 1.0f);
  std::vector<double> medians_us;
  for (const auto& run : runs) {
    run->write(ones.data());
    run->run();
    std::vector<double> times_us;
    for (int i = 0; i < 5; ++i) times_us.push_back(time_us([&] { run->run(); }));
    max_over_ranks(runtime, times_us);
    medians_us.push_back(summarise(std::move(times_us)).median);
  }
  return static_cast<std::size_t>(std::ranges::min_element(medians_us) - medians_us.begin());
}

}  // namespace

std::unique_ptr<OverlapSystem> make_kolo_overlap(Runtime& runtime,
                                                 const std::vector<std::size_t>& counts,
                                                 Home home) {
  return std::make_unique<KoloOverlap>(runtime, counts, home);
}

std::unique_ptr<OverlapSystem> make_blocking_overlap(Runtime& runtime, CollectiveSystem& peer,
                                                     const std::vector<std::size_t>& counts,
                                                     Calls calls) {
  check(calls != Calls::kBuckets, "blocking calls know no buckets");
  const std::vector<std::size_t> each =
      calls == Calls::kEach ? counts : std::vector<std::size_t>{total(counts)};
  std::map<std::size_t, std::size_t> fastest;  // Index of the fastest variant, by count.
  std::vector<std::unique_ptr<CollectiveRun>> chosen;
  for (const std::size_t count : each) {
    auto runs = peer.prepare({.bytes = count * sizeof(float), .home = Home::kUser});
    if (!fastest.contains(count)) fastest[count] = fastest_of(runtime, runs, count);
    chosen.push_back(std::move(runs[fastest[count]]));
  }
  return std::make_unique<BlockingOverlap>(peer.name(), calls, std::move(chosen), each);
}

}  // namespace kolo::bench
