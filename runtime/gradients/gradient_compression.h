#pragma once

#include <string>
#include <vector>

#include "compression/compression_spec.h"
#include "fusion/gradient.h"
#include "runtime/options/plan_summary.h"

namespace kolo {

/// Decides how each gradient is sent, and writes the decision to its spec: a 16-bit compression
/// becomes the wire dtype; a compression that may be sparse remains as text for the plan. Biases,
/// other small tensors and gradients that are not float32 are sent dense, whatever the rules say;
/// so are gradients in device memory whose method is for host memory.
///
/// Returns the gradients that do not follow their spec, with the reason, for the summary of the
/// plan; those of a small size or one dimension only if no gradient follows the spec.
///
/// Threads: pure; any. Errors: KoloError(kConfig) that names the gradient, if its own spec cannot
///          be parsed.
std::vector<CompressionDecision> resolve_compression(std::vector<GradientSpec>& gradients,
                                                     const CompressionRules& rules);

/// Throws UsageError, which names the gradient, if a gradient with a `compression` is not summed or
/// averaged, or is not divided by the number of all ranks.
void check_compression(const std::vector<GradientSpec>& gradients, const GradientOptions& options);

/// Throws KoloError(kConfig), which names the gradient, if measured times decide how it is sent.
void check_reproducible(const std::vector<GradientSpec>& gradients);

/// Counts gradients and elements by compression, for display: "4 of 8 gradients (99.8 % of
/// elements) topk(0.01), 4 dense". Empty if no gradient is compressed.
std::string summarize_compression(const std::vector<GradientSpec>& gradients);

}  // namespace kolo
