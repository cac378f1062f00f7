#pragma once

#include "comm/base/buffer_view.h"
#include "runtime/api/kolo.h"
#include "trainer/parameter_set.h"

namespace kolo::trainer {

/// Agrees with all ranks on one gradient for each parameter whose gradient is not rows, to be
/// averaged, in the runtime's memory of kind `memory`. Collective.
/// Errors: KoloError(kMismatch) when ranks hold different parameters.
GradientSet register_gradients(Runtime& runtime, const ParameterSet& parameters, MemoryKind memory,
                               GradientOptions options);

/// Gives all ranks the parameters and buffers of rank 0. Collective.
void broadcast_values(Runtime& runtime, ParameterSet& parameters);

}  // namespace kolo::trainer
