#pragma once

#include <cstddef>
#include <string>

namespace kolo {

/// What compression does to one group of a gradient set: on this rank, in its last iteration.
struct CompressionStats {
  std::string tensors = {};       ///< "'fc1.weight' and 3 more".
  std::string path = {};          ///< The spec that is in force, with its route.
  std::size_t elements = 0;       ///< Of the group.
  std::size_t steps = 0;          ///< So far, skipped ones too.
  std::size_t skipped_steps = 0;  ///< Not finite on some rank.
  std::size_t k = 0;              ///< Pairs that this rank might send; 0 in a dense step.
  std::size_t kept_pairs = 0;     ///< Of all ranks' results.
  double density = 0.0;           ///< kept_pairs / elements; 1 in a dense step.
  std::size_t payload_bytes = 0;  ///< In use in what this rank sent.
  double predicted_ms = 0.0;      ///< Of a sparse step, alone on the machine.
  double measured_ms = 0.0;       ///< From when it was ready on all ranks until it was done here.
  double residual_norm = 0.0;
  double gradient_norm = 0.0;  ///< Of the combined gradients.
};

/// What was decided about one group of gradients whose spec left something open.
struct CompressionDecision {
  std::string tensors = {};   ///< "'fc1.weight' and 3 more".
  std::size_t elements = 0;   ///< Of the group.
  std::string path = {};      ///< "dense", "dense 16-bit", "top-k through owners", ...
  double predicted_ms = 0.0;  ///< Of that path.
  double dense_ms = 0.0;      ///< Of float32 without compression.
  std::string reason = {};    ///< Why, with the predictions that decided.
};

/// In a line, for people: "dense of 'fc1.weight' and 3 more (1000 elements): ...".
std::string to_string(const CompressionDecision& decision);

}  // namespace kolo
