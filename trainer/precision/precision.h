#pragma once

#include <string>

#include "comm/base/dtype.h"
#include "trainer/precision/loss_scaler.h"

namespace kolo::trainer {

/// The dtype that a model computes in: float32, bfloat16 or float16. Weights, moments and sums are
/// float32 in any case.
/// Errors: KoloError(kConfig) naming the choices.
DType parse_precision(const std::string& text);

/// "off", "dynamic", a number, or "auto": dynamic for float16, whose range gradients leave, and off
/// for the others, whose range is that of float32.
/// Errors: KoloError(kConfig) naming the choices.
LossScaler::Options parse_loss_scale(const std::string& text, DType precision);

}  // namespace kolo::trainer
