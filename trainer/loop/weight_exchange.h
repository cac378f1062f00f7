#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/api/kolo.h"
#include "trainer/checkpoint/state_visitor.h"
#include "trainer/parameter_set.h"

namespace kolo::trainer {

/// The local steps after which ranks exchange weights. Local steps are numbered from 1. Each
/// fragment of the weights is exchanged once in `every` steps. An exchange ends `overlap` steps
/// after it begins; the diagram shows the fragment whose exchange begins or ends after a step:
///
///     every = 6, fragments = 2, overlap = 1:   step     1  2  3  4  5  6  7  8  9
///                                              begins         0        1        0
///                                              ends              0        1
struct ExchangeTimes {
  std::size_t every = 1;      ///< Number of steps between two exchanges of a fragment.
  std::size_t fragments = 1;  ///< Number of fragments, at most `every`.
  /// Number of steps during which an exchange is in flight; below `every / fragments`, so that only
  /// one exchange is in flight at a time.
  std::size_t overlap = 0;

  /// Returns the fragment whose exchange begins after local step `step`; empty if none begins.
  std::optional<std::size_t> begins(std::uint64_t step) const;
  /// Returns the fragment whose exchange ends after local step `step`; empty if none ends.
  std::optional<std::size_t> ends(std::uint64_t step) const {
    return step < overlap ? std::nullopt : begins(step - overlap);
  }
  /// Returns the fragment whose exchange is in flight after local step `step`; empty if none is.
  std::optional<std::size_t> under_way(std::uint64_t step) const;
  /// Returns true if all ranks have the same weights after local step `step`.
  bool agree_after(std::uint64_t step) const {
    return step == 0 || (fragments == 1 && overlap == 0 && step % every == 0);
  }
};

/// Options of the outer optimizer, which is SGD. Its gradient is the difference between the weights
/// that ranks last agreed on and the mean of their present weights. With learning rate 1 and
/// without momentum, ranks agree on that mean.
struct OuterOptimizer {
  float lr = 1.0f;
  float momentum = 0.0f;  ///< Nesterov momentum; 0: no momentum.
};

/// Exchanges weights between ranks that take local steps. Each rank sends its movement: the weights
/// that ranks last agreed on, minus its present weights. The outer optimizer applies the mean of
/// the movements to the agreed weights. Each rank continues from the result, to which it adds its
/// movement during the exchange. Movements are small, so they lose less to rounding than weights.
/// They are averaged as gradients are: each fragment is a gradient set, whose codec compresses
/// them.
///
/// Collective: all ranks make the same calls.
/// Threads: one. `runtime` and `parameters` outlive this object.
/// Memory:  one float per weight, one more with momentum or with a codec that keeps residuals, and
///          two per weight of the largest fragment.
/// Source:  Lin et al., "Don't Use Large Mini-Batches, Use Local SGD", ICLR 2020; Douillard et al.,
///          "DiLoCo", 2023, and "Streaming DiLoCo with overlapping communication", 2025.
class WeightExchange final : public Stateful {
 public:
  struct Options {
    std::size_t fragments = 1;
    OuterOptimizer outer = {};
    std::string compression = {};  ///< Rules for movements; if empty, the option `compression`.
  };

  /// Errors: KoloError(kConfig) if there are more fragments than tensors.
  WeightExchange(Runtime& runtime, ParameterSet& parameters, const Options& options);

  /// Makes the present weights the agreed weights. Call it before the first exchange. Before: all
  /// ranks have equal weights.
  void agree();

  /// Starts the exchange of a fragment. Before: no exchange is in flight.
  void begin(std::size_t fragment);
  /// Blocks until the exchange in flight is complete, and updates the weights of its fragment.
  /// Errors: those of the runtime.
  void finish();

  /// Returns one entry for each compressed bucket, except those of the exchange in flight.
  std::vector<CompressionStats> compression_stats() const;
  /// Returns the bytes of memory on this rank.
  std::size_t bytes() const {
    return (agreed_.size() + velocity_.size() + begun_.size() + moved_.size()) * sizeof(float);
  }

  /// Visits all state except the parameters. Blocks until the exchange in flight is complete.
  /// Before: if the state to restore has an exchange in flight, `resume` was called.
  void visit_state(StateVisitor& visitor) override;
  /// Declares that the state to restore next has an exchange of `fragment` in flight.
  void resume(std::size_t fragment) { under_way_ = fragment; }

 private:
  /// A range of parameters, and the range of their elements in `agreed_`.
  struct Fragment {
    std::size_t first = 0, last = 0;   // parameters [first, last)
    std::size_t begin = 0, count = 0;  // elements [begin, begin + count)
  };
  std::span<float> agreed(const Fragment& of) {
    return std::span(agreed_).subspan(of.begin, of.count);
  }
  /// Calls `use(parameter, begin)` for each parameter of `of`. `begin` is the index of the
  /// parameter's first element in the fragment.
  template <typename Use>
  void each_parameter(const Fragment& of, const Use& use);

  /// Divides the parameters into `number` fragments.
  void make_fragments(std::size_t number);
  /// Blocks until the movements of `under_way_` are replaced by their means.
  void await_mean();

  ParameterSet& parameters_;
  const OuterOptimizer outer_;
  std::vector<Fragment> fragments_;
  std::vector<float> agreed_, velocity_;  // elements of all parameters in order
  std::vector<float> begun_;              // this rank's weights when the exchange began
  std::shared_ptr<std::byte[]> memory_;
  std::span<float> moved_;                // this rank's movement, replaced by the mean
  std::vector<GradientSet> sets_;         // by fragment, the movements in `memory_`
  std::optional<std::size_t> under_way_;  // fragment whose exchange is in flight
  bool is_averaging_ = false;             // the set of `under_way_` is in an iteration
};

}  // namespace kolo::trainer
