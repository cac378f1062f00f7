#pragma once

#include <cstddef>
#include <string>

#include "comm/base/dtype.h"
#include "runtime/gradients/gradient_compression.h"
#include "runtime/options/options.h"
#include "trainer/config.h"

namespace kolo::trainer {

/// The properties of a job that decide how `auto` compresses an adaptive optimizer's gradients.
struct AdaptiveJob {
  std::size_t warmup_steps;  ///< Steps in which the learning rate rises.
  std::size_t total_steps;
};

/// The compression rules of a job with an adaptive optimizer: `rules`, except that a sole `auto`
/// for all gradients becomes what such jobs need to reach the loss of dense training. Embeddings
/// stay dense, top-k loses no sums, and unless `rules` names a warm-up, dense steps last for 15 %
/// of all steps or 1.2 times the learning-rate warm-up, whichever is longer. Pure.
///
///     auto(0.02)   ->   embedding*=none,*=auto(0.02,warmup=150,rule=lossless)
std::string adaptive_rules(const std::string& rules, const AdaptiveJob& job);

/// True if a top-k rule has no dense steps after the learning-rate warm-up of `warmup_steps` steps:
/// an adaptive optimizer's second moments are then too young. Pure.
bool begins_sparse_early(const std::string& rules, std::size_t warmup_steps);

/// Errors: KoloError(kConfig) if the rules name a codec and the device is not "cpu": codecs work on
///         gradients in host memory, so a job on a GPU would be dense despite its report.
void require_device_compression(const Options& options);

/// The dtype in which a job keeps and sends its gradients: the one that --gradients names. For
/// "auto" it is bfloat16 if products are bfloat16, on the processor and if nothing else rounds or
/// compresses gradients; else float32. `options` are the runtime's options in force.
///
/// Errors: KoloError(kConfig) for bfloat16 on a GPU, and with sparse compression, whose residuals
///         belong to float32 gradients.
DType gradient_dtype(const Config& config, const Options& options);

}  // namespace kolo::trainer
