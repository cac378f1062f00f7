#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/goals/goal_algorithm.h"

namespace kolo {

/// All algorithms for goals, preferred first among equals.
///
/// - direct: any goal; each contribution goes straight to its receivers.
/// - tree: broadcast, gather, scatter, reduce; binomial between nodes, few messages.
/// - bruck: all-gather, all-to-all, reduce-scatter; rounds of doubling distance, few messages.
/// - ring: all-gather, broadcast, reduce; from node to node, piece after piece.
/// - scatter_allgather: broadcast; a share to each node, which passes it on at once.
/// - pairwise: gather, scatter, all-to-all, and reduce-scatter but of 16-bit floats; round after
///   round, one peer at a time.
/// - native: all, in device memory; one collective of the device's own library.
std::span<const GoalAlgorithm* const> goal_algorithms_of_all();

/// The value of an option: the cheapest algorithm, or the one of that name for the goals that it
/// serves, if they are not too large for it, and the cheapest for others. A value: text is parsed
/// once, where it enters.
class GoalAlgorithmRequest {
 public:
  GoalAlgorithmRequest() = default;  ///< "auto"
  /// "auto" or a name. Errors: UsageError that lists the names.
  GoalAlgorithmRequest(std::string_view text);  // NOLINT(google-explicit-constructor)
  GoalAlgorithmRequest(const char* text)        // NOLINT(google-explicit-constructor)
      : GoalAlgorithmRequest(std::string_view(text)) {}
  GoalAlgorithmRequest(const std::string& text)  // NOLINT(google-explicit-constructor)
      : GoalAlgorithmRequest(std::string_view(text)) {}
  GoalAlgorithmRequest(const GoalAlgorithm& algorithm)  // NOLINT(google-explicit-constructor)
      : algorithm_(&algorithm) {}

  /// Null: "auto".
  const GoalAlgorithm* algorithm() const { return algorithm_; }

 private:
  const GoalAlgorithm* algorithm_ = nullptr;
};

/// The texts that a request takes: "auto" and each name.
std::vector<std::string> goal_algorithm_texts();

/// The predicted time of a goal, in microseconds. Pure.
double predict_us(const GoalAlgorithm& algorithm, const Goal& goal, const BucketLayout& layout,
                  const GoalContext& context);

/// The algorithm that is asked for, if it serves the goal and holds it, or else the cheapest; on a
/// single node the first that serves it. Before: arguments are equal on all ranks. Pure.
const GoalAlgorithm& resolve_goal_algorithm(const Goal& goal, const BucketLayout& layout,
                                            const GoalContext& context,
                                            const GoalAlgorithmRequest& request);

}  // namespace kolo
