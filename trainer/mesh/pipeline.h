#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/api/kolo.h"
#include "trainer/data/dataset.h"
#include "trainer/loss/loss.h"
#include "trainer/mesh/mesh.h"
#include "trainer/models/model.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Performs the passes of a step on one stage of a pipeline, by the schedule "one forward, one
/// backward" (1F1B). Stages send activations and their gradients as messages, which are in flight
/// while the stages compute.
///
///     4 passes, 2 stages    stage 0   f0 f1 b0 f2 b1 f3 b2 b3      time →
///                           stage 1      f0 b0 f1 b1 f2 b2 f3 b3
///
/// A stage keeps the input of each pass until its backward pass. It has memory for one input per
/// stage after it, for the input of the current pass, and for an input that is being received.
/// Layers keep the activations of one forward pass, so a stage with several open passes recomputes
/// the forward pass before each backward pass.
///
/// Collective: all stages call the same functions in the same order. Threads: one. `mesh`, `model`
/// and `loss` outlive this object.
/// Source: Narayanan et al., "PipeDream", SOSP 2019; as PipeDream-Flush in "Memory-Efficient
///         Pipeline-Parallel DNN Training", ICML 2021.
class Pipeline {
 public:
  /// `passes` is the number of passes per step, each a call of `train`.
  Pipeline(Mesh& mesh, Model& model, Loss& loss, std::size_t passes);

  /// Computes a forward pass of this stage, and the backward passes that are due by then. After the
  /// last call of a step, all gradients of the stage are complete. Returns the sums of the loss on
  /// the last stage, and zeros on the others. Blocks until the neighbouring stages have sent.
  LossSums train(const Batch& batch, float row_weight);

  /// Computes a forward pass without a backward pass. Returns sums as `train` does.
  LossSums evaluate(const Batch& batch);

  /// Sends the values of `Model::shared_table` from the first stage to the last. Call it on all
  /// stages after the values have changed.
  void share_table();

 private:
  enum Tag : std::uint64_t { kActivation = 1, kGradient, kTableGradient, kTableValue };

  /// The input of a pass, kept until its backward pass.
  struct Kept {
    std::vector<std::byte> bytes = {};
    DType dtype = DType::kFloat32;
    Pass pass = {};
  };
  /// A message being sent. It has a copy of the values, because the stage overwrites them.
  struct Sent {
    Tensor memory = {};
    std::optional<Ticket> ticket = {};  // declared after `memory`, which outlives it
  };

  Kept& kept(std::size_t pass) { return kept_[pass % kept_.size()]; }
  /// Copies the input of a pass from the batch on the first stage, and receives it on the others.
  void take_input(std::size_t pass, const Batch& batch, bool is_training);
  /// Begins to receive the input of a pass, except on the first stage.
  void expect_input(std::size_t pass);
  /// Computes the forward pass from the kept input.
  std::span<const float> forward(std::size_t pass);
  /// Computes the backward pass of the oldest pass that has had none.
  void backward(std::span<const float> output_gradient);
  /// Adds the last stage's gradient of the shared table to that of the first stage.
  void complete_table();
  int stage_before() const { return mesh_.world().rank() - distance_; }
  int stage_after() const { return mesh_.world().rank() + distance_; }
  /// The rank in the last stage for a rank of the first stage, and the reverse.
  int other_end() const;
  void send(std::span<const float> values, int peer, Tag tag);
  Ticket receive(std::span<float> values, int peer, Tag tag);
  void wait(Ticket& ticket) {
    mesh_.communicate([&] { ticket.wait(); });
  }

  Mesh& mesh_;
  Model& model_;
  Loss& loss_;
  const std::size_t passes_;
  const Stage stage_;
  const int distance_;  // difference between the ranks of equal places in adjacent stages
  std::vector<Kept> kept_;
  std::optional<Ticket> input_;  // input being received; `kept_` outlives it
  std::size_t forwards_ = 0;     // number of forward passes in this step
  std::size_t backwards_ = 0;    // number of backward passes in this step
  std::size_t in_layers_ = 0;    // the pass whose activations the layers have
  Tensor output_gradient_;
  Tensor table_gradient_;
  std::array<Sent, 4> sent_;
  std::size_t next_sent_ = 0;
};

}  // namespace kolo::trainer
