#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "comm/base/dtype.h"
#include "fusion/gradient.h"

namespace kolo {

/// The set as text, which must be equal on all ranks: a line for the set, then one per gradient.
/// The hash of the text is the fingerprint of the set; errors quote its lines when ranks disagree.
std::string describe(std::span<const GradientSpec> gradients, const GradientOptions& options);

/// Dtype and shape for people: "float32 [3, 4]".
std::string describe_shape(DType dtype, std::span<const std::size_t> shape);

/// Fills in the dtypes and shapes that `data` tells. Errors: UsageError for one that nothing tells,
/// and for a shape of another number of elements than `data` has.
void complete(std::span<GradientSpec> gradients);

/// Throws UsageError on an empty set, an empty or repeated name, a shape that no memory can hold, a
/// dtype or operation that is not of numbers, a wire dtype that is not floating-point, a divisor
/// without an average or with a gradient that it is not for, or two gradients that share memory.
void check_gradients(std::span<const GradientSpec> gradients, const GradientOptions& options);

}  // namespace kolo
