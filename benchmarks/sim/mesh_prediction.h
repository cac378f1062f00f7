#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "benchmarks/sim/sim_cluster.h"
#include "trainer/catalog.h"
#include "trainer/config.h"

namespace kolo::bench {

/// The times of the passes of one stage, in microseconds.
struct StageTimes {
  double forward_us = 0;
  double backward_us = 0;
  double message_us = 0;  ///< Time of a message between this stage and the next.
};

struct PipelineTimes {
  double us = 0;      ///< Time from the first forward pass to the last backward pass.
  double bubble = 0;  ///< Share of this time in which a stage waits, the mean of all stages.
};

/// Plays the passes of a step in the order of `trainer::order_of_passes`. A forward pass begins
/// when the previous stage's output is there, a backward pass when the next stage's gradient is.
PipelineTimes play_passes(const std::vector<StageTimes>& stages, std::size_t passes);

/// Predicts the memory and the steps of a training job whose model may be split.
class MeshJob {
 public:
  /// `options` are those of kolo-train. Errors: those of its command line and of its data.
  explicit MeshJob(const std::vector<std::string>& options);

  /// Returns the fields of the job's row on `cluster`, whose ranks each compute `flops_per_us` or,
  /// if `compute_us` is above 0, all passes of the whole model over one batch in this time.
  /// Gradients are averaged after the last pass. Errors: KoloError(kConfig) if the mesh does not
  /// fit the ranks or the model; those of `Cluster::run`.
  nlohmann::json predict(const ClusterSpec& cluster, double flops_per_us, double compute_us) const;

 private:
  trainer::Catalog catalog_ = trainer::built_in_catalog();
  trainer::Config config_;
  trainer::Task task_;
};

}  // namespace kolo::bench
