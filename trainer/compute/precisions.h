#pragma once

#include "comm/base/dtype.h"

namespace kolo::trainer {

/// Whether products of operands of this dtype can be computed here: float32 and emulated float16
/// everywhere, bfloat16 where oneDNN has it. It is fast with AVX-512 BF16 or AMX, and emulated with
/// other kinds of AVX-512.
bool can_compute(DType precision);

}  // namespace kolo::trainer
