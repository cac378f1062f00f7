#pragma once

#include "comm/base/buffer_view.h"
#include "comm/base/dtype.h"
#include "runtime/api/kolo.h"
#include "trainer/parameter_set.h"

namespace kolo::trainer {

/// Where and in which dtype gradients are kept.
struct GradientStorage {
  MemoryKind memory = MemoryKind::kHost;
  DType dtype = DType::kFloat32;
};

/// Agrees with all ranks on one gradient for each parameter whose gradient is not rows, to be
/// averaged, in memory of the runtime. Collective.
/// Errors: KoloError(kMismatch) when ranks hold different parameters.
GradientSet register_gradients(Runtime& runtime, const ParameterSet& parameters,
                               const GradientStorage& storage, GradientOptions options);

/// Gives all ranks the parameters and buffers of rank 0. Collective.
void broadcast_values(Runtime& runtime, ParameterSet& parameters);

}  // namespace kolo::trainer
