#pragma once

#include <span>

namespace kolo {

/// The sum of the squares of all values. In float32, in an order of its own: value i is added to
/// partial sum i % 64, and these by halves. Not finite if a value is not.
///
/// Rounding: of every product and every sum; the bits do not depend on the instruction set.
/// Threads:  pure; any.
/// Cost:     one read of the values.
float block_energy(std::span<const float> values);

/// A readable form, which defines every bit.
namespace reference {
float block_energy(std::span<const float> values);
}

}  // namespace kolo
