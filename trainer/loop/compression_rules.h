#pragma once

#include <cstddef>
#include <string>

#include "comm/base/dtype.h"
#include "runtime/gradients/gradient_compression.h"
#include "runtime/options/options.h"
#include "trainer/config.h"

namespace kolo::trainer {

/// The properties of a job that determine how "auto" compresses an adaptive optimizer's gradients.
struct AdaptiveJob {
  std::size_t warmup_steps;  ///< Steps of the learning-rate warm-up.
  std::size_t total_steps;
};

/// The compression rules of a job with an adaptive optimizer. If `rules` is a single "auto" for all
/// gradients, the result adds what such jobs need to reach the loss of dense training: embeddings
/// stay dense, the top-k quota rule is lossless, and the first steps are dense. Their number is
/// that of `rules` or, if it names none, 15 % of all steps or 1.2 times the learning-rate warm-up,
/// whichever is larger. Other rules are returned unchanged. Pure.
///
///     auto(0.02)   ->   embedding*=none,*=auto(0.02,warmup=150,rule=lossless)
std::string adaptive_rules(const std::string& rules, const AdaptiveJob& job);

/// Whether a rule of a sparse method starts sparse steps before the learning-rate warm-up of
/// `warmup_steps` steps has ended. At that time, an adaptive optimizer's second moments are not yet
/// reliable. Pure.
bool begins_sparse_early(const std::string& rules, std::size_t warmup_steps);

/// Warns users of an adaptive optimizer of options that do not suit sparse gradients.
void advise_adaptive(const Config& config, const std::string& compression);

/// Checks that compression works on the job's device. On a GPU, momentum correction is for sgd
/// only, and there is no loss scale, which residuals would keep when it changes. Errors:
/// KoloError(kConfig) if the rules name a codec that works in host memory only and the device is
/// not "cpu".
void require_device_compression(const Config& config, const Options& options);

/// Checks that the momentum that Kolo applies to `parameter` is the optimizer's. Errors:
/// KoloError(kConfig) naming both.
void require_momentum(float corrected, float momentum, const std::string& parameter);

/// The dtype in which a job stores and sends gradients, as --gradients says. "auto" is bfloat16 if
/// the job runs on the processor with bfloat16 products and without shards, compression and another
/// wire dtype; otherwise it is float32. `options` are the runtime's options in force.
///
/// Errors: KoloError(kConfig) if bfloat16 is named with shards on the processor, or with sparse
///         compression, whose residuals need float32 gradients.
DType gradient_dtype(const Config& config, const Options& options);

}  // namespace kolo::trainer
