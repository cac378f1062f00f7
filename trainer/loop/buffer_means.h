#pragma once

#include <span>
#include <vector>

#include "runtime/api/kolo.h"
#include "trainer/checkpoint/state_visitor.h"
#include "trainer/parameter_set.h"

namespace kolo::trainer {

/// The buffers of a model on all ranks. Running statistics differ between ranks while they train,
/// and their means are what is evaluated and kept; training goes on with each rank's own.
///
/// Threads: one. `runtime` and `parameters` outlive it.
class BufferMeans final : public Stateful {
 public:
  BufferMeans(Runtime& runtime, ParameterSet& parameters)
      : runtime_(runtime), parameters_(parameters) {}

  /// Gives the model the means over all ranks, the same bits on each. Collective.
  void begin();
  /// Gives it back what it had before.
  void end() { set(own_); }

  /// Outside of `begin` and `end`; collective when saving. What is saved are the means, with which
  /// another number of ranks goes on, and each rank's own.
  void visit_state(StateVisitor& visitor) override;

 private:
  std::vector<float> all() const;
  void set(std::span<const float> values);

  Runtime& runtime_;
  ParameterSet& parameters_;
  std::vector<float> own_;  // of all buffers, between begin and end
};

}  // namespace kolo::trainer
