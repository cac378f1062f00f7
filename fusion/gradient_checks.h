#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "comm/base/dtype.h"
#include "fusion/gradient.h"

namespace kolo {

/// Returns a text that describes the set and must be equal on all ranks: a line for the set, then
/// one per gradient. Its hash is the set's fingerprint; errors quote lines that differ.
std::string describe(std::span<const GradientSpec> gradients, const GradientOptions& options);

/// Returns dtype and shape for messages: "float32 [3, 4]".
std::string describe_shape(DType dtype, std::span<const std::size_t> shape);

/// Fills in missing dtypes and shapes from `data`. Errors: UsageError if one is missing there, too,
/// or if a shape does not match the number of elements of `data`.
void complete(std::span<GradientSpec> gradients);

/// Throws UsageError for an empty set, an empty or repeated name, a shape that exceeds the address
/// space, a dtype or operation that is not for numbers, a wire dtype that is not floating-point, a
/// divisor without an average or with an unsupported gradient, or two gradients that share memory.
void check_gradients(std::span<const GradientSpec> gradients, const GradientOptions& options);

}  // namespace kolo
