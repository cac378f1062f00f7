#pragma once

#include <cstddef>
#include <string>

#include "comm/base/dtype.h"
#include "runtime/gradients/gradient_compression.h"
#include "runtime/options/options.h"
#include "trainer/config.h"

namespace kolo::trainer {

/// The part of a job that decides how `auto` compresses an adaptive optimizer's gradients.
struct AdaptiveJob {
  std::size_t warmup_steps;  ///< Rise of the learning rate.
  std::size_t total_steps;
};

/// The compression rules of a job with an adaptive optimizer: `rules`, but `auto` for all gradients
/// becomes what such jobs need to reach the loss of dense ones. Embeddings stay dense, all sums
/// come back, and sparse steps begin after 15 % of all steps and 1.2 times the rise of the learning
/// rate, unless `rules` names a warm-up. Pure.
///
///     auto(0.02)   ->   embedding*=none,*=auto(0.02,warmup=150,rule=lossless)
std::string adaptive_rules(const std::string& rules, const AdaptiveJob& job);

/// True if some top-k has no dense steps beyond the rise of the learning rate, of `warmup_steps`
/// steps: an adaptive optimizer's second moments are too young then. Pure.
bool begins_sparse_early(const std::string& rules, std::size_t warmup_steps);

/// Errors: KoloError(kConfig) if the rules name a codec and the device is not "cpu": its gradients
/// live in host memory, so a job on a GPU would be dense whatever its report says.
void require_device_compression(const Options& options);

/// The dtype in which a job keeps and sends its gradients: what --gradients names, or for "auto"
/// bfloat16 where products are, on the processor and as long as nothing else rounds or compresses
/// gradients. `options` are those in force, as the runtime has them.
///
/// Errors: KoloError(kConfig) for bfloat16 on a GPU, and with sparse compression, whose residuals
///         belong to float32 gradients.
DType gradient_dtype(const Config& config, const Options& options);

}  // namespace kolo::trainer
