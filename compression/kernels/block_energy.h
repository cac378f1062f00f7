#pragma once

#include <span>

namespace kolo {

/// The sum of the squares of all values, in float32 and in a fixed order: value i is added to
/// partial sum i % 64, and the partial sums are added in halves. Not finite if a value is not.
///
/// Rounding: every product and every sum is rounded; the bits do not depend on the instruction set.
/// Threads:  pure; any.
/// Cost:     one read of the values.
float block_energy(std::span<const float> values);

/// The readable form, which defines every bit.
namespace reference {
float block_energy(std::span<const float> values);
}

}  // namespace kolo
