#pragma once

#include "comm/base/buffer_view.h"
#include "comm/base/dtype.h"

namespace kolo {

/// Sets every element of `target`, in host memory, to the one that changes no result of `op`: zero
/// for a sum, an average, or and exclusive or of bits, one for a product, all bits for their
/// conjunction, and the largest or lowest value, infinity where there is one, for a minimum or
/// maximum.
///
/// Before:  the dtype is one of `kNumberDTypes`, and `op` takes it.
/// Threads: pure; any.
void fill_neutral(const BufferView& target, ReduceOp op);

}  // namespace kolo
