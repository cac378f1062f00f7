#pragma once

namespace kolo::trainer {

/// What a result does with the values that its memory holds.
enum class Into { kOverwrite, kAdd };

}  // namespace kolo::trainer
