#pragma once

#include <string_view>

namespace kolo::trainer::cuda {

/// Throws KoloError(kInternal) with CUDA's text unless the launch of `kernel` was accepted. Does
/// not wait for it.
void check_launch(std::string_view kernel);

}  // namespace kolo::trainer::cuda
