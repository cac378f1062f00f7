#pragma once

#include <span>

#include "comm/base/buffer_view.h"

namespace kolo {

/// True if no number of a tensor is infinite or NaN. Integers are finite; device memory is not
/// checked.
///
/// Threads: pure; any.
/// Cost:    one read of the tensor, at the speed of the caches.
bool all_finite(const BufferView& tensor);
bool are_finite(std::span<const float> values);

}  // namespace kolo
