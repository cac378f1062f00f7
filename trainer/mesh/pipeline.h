#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "runtime/api/kolo.h"
#include "trainer/data/dataset.h"
#include "trainer/loss/loss.h"
#include "trainer/mesh/mesh.h"
#include "trainer/models/model.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// A forward or backward pass of a step on one stage.
struct StagePass {
  bool is_forward;
  std::size_t pass;  ///< Index of the pass in the step.
};

/// Returns the passes of a step on one stage in the order "one forward, one backward" (1F1B). A
/// stage computes as many forward passes ahead of backward passes as there are stages after it.
///
///     4 passes, 2 stages    stage 0   f0 f1 b0 f2 b1 f3 b2 b3      time →
///                           stage 1      f0 b0 f1 b1 f2 b2 f3 b3
///
/// Source: Narayanan et al., "PipeDream", SOSP 2019; as PipeDream-Flush in "Memory-Efficient
///         Pipeline-Parallel DNN Training", ICML 2021.
std::vector<StagePass> order_of_passes(const Stage& stage, std::size_t passes);

/// Returns the largest number of passes of which a stage keeps activations at the same time.
std::size_t open_passes(const Stage& stage, std::size_t passes);

/// Performs the passes of a step on one stage of a pipeline, in the order of `order_of_passes`.
/// Activations and their gradients are in flight while the stages compute.
///
/// Collective: all stages call the same functions in the same order. Threads: one. All references
/// outlive this object.
class Pipeline {
 public:
  /// A step has `passes` calls of `train`. `models` are those of RankModels.
  Pipeline(Mesh& mesh, std::span<const std::unique_ptr<Model>> models, Loss& loss,
           std::size_t passes);

  /// Computes a forward pass of this stage, and the backward passes that are due by then. After the
  /// last call of a step, all gradients of the stage are complete. Returns the sums of the loss on
  /// the last stage, and zeros on the others.
  LossSums train(const Batch& batch, float row_weight);

  /// Computes a forward pass without a backward pass. Returns sums as `train` does.
  LossSums evaluate(const Batch& batch);

  /// Sends the values of `Model::shared_table` from the first stage to the last. Call it on all
  /// stages after the values have changed.
  void share_table();

  /// Returns the time for which passes have waited for other stages since the last call.
  std::chrono::nanoseconds take_waited() { return std::exchange(waited_, {}); }

 private:
  enum Tag : std::uint64_t { kActivation = 1, kGradient, kTableGradient, kTableValue };

  /// The input of a pass, kept until its backward pass.
  struct Input {
    std::vector<std::byte> bytes = {};
    DType dtype = DType::kFloat32;
    std::optional<Ticket> arrival = {};  // set while the input is being received
  };

  Input& input_of(std::size_t pass) { return inputs_[pass % inputs_.size()]; }
  /// Computes a forward pass of the batch or, on later stages, of the received input, and sends the
  /// output.
  LossSums forward(std::size_t pass, const Batch& batch, bool is_training, float row_weight);
  void backward(std::size_t pass);
  /// Begins to receive the input of a pass, except on the first stage.
  void expect_input(std::size_t pass);
  /// Begins to receive the gradient of the output for the next backward pass, except on the last
  /// stage.
  void expect_gradient();
  /// Adds the last stage's gradient of the shared table to that of the first stage.
  void complete_table();
  int stage_before() const { return mesh_.world().rank() - distance_; }
  int stage_after() const { return mesh_.world().rank() + distance_; }
  /// The rank in the last stage for a rank of the first stage, and the reverse.
  int other_end() const;
  void wait(std::optional<Ticket>& ticket);

  Mesh& mesh_;
  const std::span<const std::unique_ptr<Model>> models_;
  Loss& loss_;
  const Stage stage_;
  const std::vector<StagePass> order_;
  const int distance_;         // difference between the ranks of equal places in adjacent stages
  std::vector<Input> inputs_;  // one for each open pass, and one that is being received
  /// The message of each model's output or input gradient, which the model still owns.
  std::vector<std::optional<Ticket>> outputs_sent_, gradients_sent_;
  std::size_t next_ = 0;  // index in `order_` of the next pass
  Parameter* const table_;
  Tensor output_gradient_;
  std::optional<Ticket> gradient_;  // set while `output_gradient_` is being received
  Tensor table_gradient_;
  std::chrono::nanoseconds waited_{0};
};

}  // namespace kolo::trainer
