#include "trainer/optimizer/update_gate.h"

#include <cmath>

#include "comm/base/error.h"
#include "trainer/optimizer/gradient_norm.h"

namespace kolo::trainer {

UpdateGate::UpdateGate(const Options& options)
    : clip_norm_(options.clip_norm), scaler_(options.loss_scale) {}

UpdateVerdict UpdateGate::judge(double scaled_norm) {
  const float scale = scaler_.scale();
  const double norm = scaled_norm / static_cast<double>(scale);
  const bool is_skipped = !std::isfinite(scaled_norm);
  record(is_skipped);
  return {.gradient_norm = norm,
          .gradient_scale = clip_factor(norm, clip_norm_) / scale,
          .is_skipped = is_skipped};
}

void UpdateGate::record(bool has_overflowed) {
  if (has_overflowed && !scaler_.can_skip()) {
    throw KoloError(Error{.code = ErrorCode::kInternal,
                          .verb = {},
                          .bucket = {},
                          .what = "gradients are not finite at loss scale 1: try a lower --lr, or "
                                  "--loss-scale dynamic if a step computes or sends float16"});
  }
  scaler_.update(has_overflowed);
}

}  // namespace kolo::trainer
