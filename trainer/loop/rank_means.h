#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include "runtime/api/kolo.h"
#include "trainer/checkpoint/state_visitor.h"
#include "trainer/checkpoint/stored_weights.h"
#include "trainer/parameter_set.h"

namespace kolo::trainer {

/// Averages over ranks a model's buffers and, on request, its weights. Buffers such as running
/// statistics differ between ranks during training; weights differ during local steps. The means
/// are evaluated and saved; training continues with the buffers and weights of each rank.
///
/// Threads: one. `runtime` and `parameters` outlive this object.
class RankMeans {
 public:
  RankMeans(Runtime& runtime, ParameterSet& parameters)
      : runtime_(runtime), parameters_(parameters) {}

  /// Replaces the buffers, and the weights if `with_weights` is true, by their means over all
  /// ranks, with equal bits on all ranks. Collective.
  void begin(bool with_weights) {
    with_weights_ = with_weights;
    own_.clear();
    std::vector<kolo::Tensor> in_place;
    each([&](std::span<float> values) {
      own_.insert(own_.end(), values.begin(), values.end());
      in_place.emplace_back(values);
    });
    if (own_.empty()) return;
    // All tensors share one all-reduce, because buffers are small and many.
    const char* const name = with_weights ? "weights and buffers" : "buffers";
    runtime_.all_reduce(name, in_place, ReduceOp::kAverage).wait();
  }
  /// Restores this rank's values, which `begin` has replaced.
  void end() {
    std::span<const float> own = own_;
    each([&](std::span<float> values) {
      std::ranges::copy(own.first(values.size()), values.begin());
      own = own.subspan(values.size());
    });
  }

  /// Saves or restores the weights and buffers. The weights are means if `with_weights` is true.
  /// For the buffers it saves the means and this rank's values; a job with another number of ranks
  /// resumes with the means. Call only while `begin` is not in effect. Collective when saving.
  void visit_state(StateVisitor& visitor, bool with_weights) {
    std::deque<Buffer>& buffers = parameters_.buffers();
    if (!visitor.is_restoring()) begin(with_weights);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      Parameter& parameter = parameters_[i];
      visitor.shared(kWeights + parameter.name(), parameter.shape(), parameter.value());
    }
    for (Buffer& buffer : buffers) {
      visitor.shared(kBuffers + buffer.name, buffer.value.shape(), buffer.value.span());
    }
    if (!visitor.is_restoring()) end();
    if (visitor.has_other_ranks()) return;
    for (Buffer& buffer : buffers) {
      visitor.own(kBuffers + buffer.name, buffer.value.shape(), buffer.value.span());
    }
  }

 private:
  template <typename Use>
  void each(const Use& use) {
    for (Buffer& buffer : parameters_.buffers()) use(buffer.value.span());
    for (std::size_t i = 0; with_weights_ && i < parameters_.size(); ++i) {
      use(parameters_[i].value());
    }
  }

  Runtime& runtime_;
  ParameterSet& parameters_;
  bool with_weights_ = false;
  std::vector<float> own_;  // this rank's values, between `begin` and `end`
};

}  // namespace kolo::trainer
