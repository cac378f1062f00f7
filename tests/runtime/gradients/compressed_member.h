#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/runtime_job.h"

/// Jobs of whole runtimes with one sparse gradient set.
namespace kolo::test {

using Tensors = std::vector<std::vector<float>>;

inline std::vector<GradientSpec> model() {
  return {{.name = "first", .shape = {70, 80}},
          {.name = "bias", .shape = {80}},
          {.name = "second", .shape = {64, 90}}};
}

/// Returns the gradients of one rank and step: small multiples of `unit`, a power of two, so that
/// all sums are exact.
inline Tensors gradients_of(int rank, std::size_t step, float unit = 0x1p-6f) {
  std::mt19937 random(static_cast<unsigned>(rank) * 1000u + static_cast<unsigned>(step));
  Tensors tensors;
  for (const GradientSpec& spec : model()) {
    std::vector<float>& tensor = tensors.emplace_back(spec.count());
    for (float& value : tensor) {
      value = static_cast<float>(static_cast<int>(random() % 129) - 64) * unit;
    }
  }
  return tensors;
}

struct Setting {
  std::string compression = "topk(0.05)";
  int ranks = 3;
  std::size_t fusion_bytes = std::size_t{1} << 20;
  ReduceOp op = ReduceOp::kSum;
};

/// One rank of a job with one registered set.
class Member {
 public:
  Member(Runtime& runtime, const Setting& setting)
      : runtime_(runtime),
        set_(runtime.register_gradients("model", model(),
                                        {.op = setting.op, .compression = setting.compression})) {}

  Runtime& runtime() { return runtime_; }
  GradientSet& set() { return set_; }

  /// Runs an iteration with these gradients; returns its results.
  Tensors reduce(const Tensors& gradients) {
    for (std::size_t i = gradients.size(); i-- > 0;) {
      const BufferView view = set_.view(i);
      std::copy(gradients[i].begin(), gradients[i].end(), static_cast<float*>(view.data));
      set_.ready(i);
    }
    set_.wait();
    Tensors results;
    for (std::size_t i = 0; i < set_.size(); ++i) {
      const auto* const data = static_cast<const float*>(set_.view(i).data);
      results.emplace_back(data, data + set_.view(i).count);
    }
    return results;
  }
  Tensors reduce(std::size_t step) { return reduce(gradients_of(runtime_.rank(), step)); }

 private:
  Runtime& runtime_;
  GradientSet set_;
};

inline Options options_of(const Setting& setting) {
  return {.fusion_bytes = setting.fusion_bytes,
          .arena_bytes = std::size_t{1} << 22,
          .verify_schedules = true,
          .node_id = "a",
          .mismatch_after = std::chrono::milliseconds(50)};
}

/// Calls `body` on every rank of a job.
inline void run(const Setting& setting, const std::function<void(Member&)>& body) {
  RuntimeJob(setting.ranks, options_of(setting)).run([&](Runtime& runtime) {
    Member member(runtime, setting);
    body(member);
  });
}

/// Returns the results of each step on rank 0.
inline std::vector<Tensors> results_of(const Setting& setting, std::size_t steps) {
  std::vector<Tensors> results;
  run(setting, [&](Member& member) {
    for (std::size_t step = 0; step < steps; ++step) {
      Tensors result = member.reduce(step);
      if (member.runtime().rank() == 0) results.push_back(std::move(result));
    }
  });
  return results;
}

inline std::size_t nonzeros(const std::vector<float>& values) {
  return values.size() - static_cast<std::size_t>(std::count(values.begin(), values.end(), 0.0f));
}

}  // namespace kolo::test
