#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace kolo {

/// Statistics of one compressed bucket of a gradient set on this rank in the last iteration.
struct CompressionStats {
  std::string tensors = {};       ///< "'fc1.weight' and 3 more".
  std::string path = {};          ///< The spec in force, with its route.
  std::size_t elements = 0;       ///< Elements in the bucket.
  std::size_t steps = 0;          ///< Steps so far, including skipped ones.
  std::size_t skipped_steps = 0;  ///< Steps in which a number on some rank was not finite.
  std::size_t k = 0;              ///< Most pairs that this rank may send; 0 in a dense step.
  std::size_t kept_pairs = 0;     ///< Pairs in the result, which all ranks share.
  double density = 0.0;           ///< kept_pairs / elements; 1 in a dense step.
  std::size_t payload_bytes = 0;  ///< Bytes of pairs that this rank sent.
  double predicted_ms = 0.0;      ///< Predicted time of a sparse step without other load.
  double measured_ms = 0.0;       ///< Time from "ready on all ranks" to "complete on this rank".
  double residual_norm = 0.0;     ///< Euclidean norm of the values that this rank has not sent yet.
  double gradient_norm = 0.0;     ///< Euclidean norm of the combined gradients.
};

/// A decision about a compressed bucket whose spec left a choice, or about gradients that do not
/// follow their spec.
struct CompressionDecision {
  std::string tensors = {};   ///< "'fc1.weight' and 3 more".
  std::size_t elements = 0;   ///< Elements in the bucket.
  std::string path = {};      ///< "dense", "dense 16-bit", "top-k through owners", ...
  double predicted_ms = 0.0;  ///< Predicted time of `path`.
  double dense_ms = 0.0;      ///< Predicted time of dense float32.
  std::string reason = {};    ///< Reason, with the predictions that led to it.
};

/// Formats a decision for display: "dense of 'fc1.weight' and 3 more (1000 elements): ...".
std::string to_string(const CompressionDecision& decision);

/// The plan of a gradient set; it stays the same until the set is planned again.
struct PlanSummary {
  std::size_t gradients = 0;   ///< Number of gradients.
  std::size_t buckets = 0;     ///< Number of buckets.
  std::size_t bytes = 0;       ///< Gradient bytes in the caller's dtypes.
  std::size_t wire_bytes = 0;  ///< Bytes that this rank sends to other nodes per iteration.
  /// Target size of buckets in bytes, from the option or chosen; for buckets in device memory if
  /// all gradients are there, else for buckets in host memory.
  std::size_t fusion_bytes = 0;
  std::string algorithm = {};    ///< Algorithm of the largest bucket.
  std::string compression = {};  ///< Number of gradients per spec; empty if all are dense.
  std::string reason = {};       ///< Reason for the algorithm of a bucket in device memory.
  /// The decisions about compressed buckets whose spec left a choice ("auto", or a route of top-k),
  /// and about gradients that do not follow their spec. "auto" is dense until 20 iterations are
  /// measured.
  std::vector<CompressionDecision> compression_decisions = {};
  std::uint64_t hash = 0;  ///< Equal on all ranks.
};

}  // namespace kolo
