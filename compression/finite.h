#pragma once

#include <span>

#include "comm/base/buffer_view.h"

namespace kolo {

/// Whether no number of a tensor is infinite or NaN. Integers are finite, and what is in device
/// memory is not looked at.
///
/// Threads: pure; any.
/// Cost:    one read of the tensor, as fast as caches give it.
bool all_finite(const BufferView& tensor);
bool are_finite(std::span<const float> values);

}  // namespace kolo
