#pragma once

#include <span>

#include "trainer/compute/into.h"

namespace kolo::trainer {

/// Layer norm of each row: y = (x - mean) · rstd · gain + bias, rstd = 1 / sqrt(variance + 1e-5).
///
/// Shape: x and y are [rows, gain.size()], gain and bias [width], mean and rstd [rows].
/// Source: Ba, Kiros and Hinton, "Layer Normalization", 2016.
void layer_norm(std::span<const float> x, std::span<const float> gain, std::span<const float> bias,
                std::span<float> y, std::span<float> mean, std::span<float> rstd);

/// The gradients of layer norm; those of gain and bias go `into` dgain and dbias. x, mean and rstd
/// are those of the forward pass.
void layer_norm_backward(std::span<const float> dy, std::span<const float> x,
                         std::span<const float> gain, std::span<const float> mean,
                         std::span<const float> rstd, std::span<float> dx, std::span<float> dgain,
                         std::span<float> dbias, Into into);

}  // namespace kolo::trainer
