#pragma once

#include <string>

#include "comm/base/dtype.h"
#include "trainer/precision/loss_scaler.h"

namespace kolo::trainer {

/// The dtype of the operands of a model's products: float32, bfloat16 or float16; see Note [Mixed
/// precision] in this folder. Errors: KoloError(kConfig) naming the choices.
DType parse_precision(const std::string& text);

/// The dtype of gradients: float32 or bfloat16. Errors: KoloError(kConfig) naming the choices, one
/// of which is "auto", which is not for this function.
DType parse_gradients(const std::string& text);

/// "off", "dynamic", a number, or "auto": dynamic for float16, whose range is too small for
/// gradients, and off for the others, whose range is that of float32. Errors: KoloError(kConfig)
/// naming the choices.
LossScaler::Options parse_loss_scale(const std::string& text, DType precision);

}  // namespace kolo::trainer
