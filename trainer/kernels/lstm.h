#pragma once

#include <cstddef>
#include <span>

namespace kolo::trainer {

/// The element-wise part of one step of an LSTM. With i, f, g, o the four gates of a row, of which
/// g is squashed by tanh and the others by the logistic function σ:
///
///     cells    = σ(f) · previous + σ(i) · tanh(g)
///     squashed = tanh(cells)
///     states   = σ(o) · squashed
///
/// Shape: gates are [rows, 4 · width], a row holding i, f, g and o side by side, and become their
///        squashed values; all else is [rows, width].
/// Source: Hochreiter and Schmidhuber, "Long Short-Term Memory", Neural Computation 1997; the gate
///         f is that of Gers et al., "Learning to Forget", Neural Computation 2000.
void lstm_cells(std::span<float> gates, std::span<const float> previous, std::size_t width,
                std::span<float> cells, std::span<float> squashed, std::span<float> states);

/// The gradients of such a step. That of the states is dy + state_gradient: what reads them in this
/// step, and the step after. `cell_gradient` is that of the cells of this step as the step after
/// sees them, and becomes that of the previous ones.
///
/// Shape: as above; squashed gates become the gradients of what they were made from.
void lstm_cells_backward(std::span<const float> dy, std::span<const float> state_gradient,
                         std::span<const float> previous, std::span<const float> squashed,
                         std::size_t width, std::span<float> cell_gradient, std::span<float> gates);

}  // namespace kolo::trainer
