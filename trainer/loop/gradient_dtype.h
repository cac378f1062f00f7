#pragma once

#include "comm/base/dtype.h"
#include "runtime/api/options.h"
#include "trainer/config.h"

namespace kolo::trainer {

/// The dtype in which a job keeps and sends its gradients: what --gradients names, or for "auto"
/// bfloat16 where products are, on the processor and as long as nothing else rounds or compresses
/// gradients. `options` are those in force, as the runtime has them.
///
/// Errors: KoloError(kConfig) for bfloat16 on a GPU, and with sparse compression, whose residuals
///         belong to float32 gradients.
DType gradient_dtype(const Config& config, const Options& options);

}  // namespace kolo::trainer
